"""A model of 1.1 million parameters, and random samples for it."""

import numpy as np

import tenon
from tenon import nn
from tenon.data import Splits, TensorDataset


class Net(nn.Module):
    def __init__(self, width: int = 1024):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )

    def forward(self, x):
        return self.layers(x)


def load(samples: int = 640) -> Splits:
    random = np.random.default_rng(0)
    x = tenon.from_numpy(random.normal(size=(samples, 64)).astype(np.float32))
    y = tenon.from_numpy(random.integers(0, 10, samples))
    return Splits(TensorDataset(x, y), TensorDataset(x[:64], y[:64]))
