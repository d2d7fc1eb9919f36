"""Two spirals, not linearly separable: data and a model for `tenon train spirals.toml`."""

import numpy as np

import tenon as torch
from tenon import nn
from tenon.data import Splits, TensorDataset


class Net(nn.Module):
    """Points `[N, 2]` to logits `[N, 2]`."""

    def __init__(self, hidden: int = 32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2)
        )

    def forward(self, x):
        return self.layers(x)


def load(samples: int = 1000) -> Splits:
    """`samples` noisy points on two spirals, four fifths of them for training."""
    random = np.random.default_rng(0)
    side = random.integers(0, 2, samples)
    turn = np.sqrt(random.uniform(0.05, 1, samples)) * 2.5 * np.pi
    angle = turn + np.pi * side
    points = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) / 8 + random.normal(
        0, 0.02, (samples, 2)
    )
    x, y = torch.from_numpy(points.astype(np.float32)), torch.from_numpy(side)
    cut = samples * 4 // 5
    return Splits(TensorDataset(x[:cut], y[:cut]), TensorDataset(x[cut:], y[cut:]))
