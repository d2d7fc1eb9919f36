"""A convolutional net on the UCI handwritten digits (8x8 pixels, 10 classes).

Data: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", 1998, CC BY 4.0,
doi 10.24432/C50P49.
"""

from __future__ import annotations

import gzip
from importlib import resources

import numpy as np

import tenon
from tenon import nn
from tenon.data import Splits, TensorDataset
from tenon.extend import Recipe


class DigitsNet(nn.Module):
    """Two 3x3 convolutions with batch norm, pooling and dropout, and a linear classifier."""

    def __init__(self, width: int = 32, dropout: float = 0.25) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(2 * width * 16, 10))

    def forward(self, images: tenon.Tensor) -> tenon.Tensor:
        """Map ``[N, 1, 8, 8]`` images to ``[N, 10]`` logits."""
        return self.classifier(self.features(images))


def load(test_share: float = 0.2, seed: int = 0) -> Splits:
    """Return the digits, scaled to [-1, 1] and split into training and test sets by a permutation."""
    packed = resources.files("tenon_recipes").joinpath("data/digits.csv.gz").read_bytes()
    table = np.loadtxt(gzip.decompress(packed).decode().splitlines(), delimiter=",", dtype=np.float32)
    images = (table[:, :64] / 8.0 - 1.0).reshape(-1, 1, 8, 8)
    labels = table[:, 64].astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(table))
    train_count = round(len(table) * (1 - test_share))

    def part(rows: np.ndarray) -> TensorDataset:
        return TensorDataset(tenon.from_numpy(images[rows]), tenon.from_numpy(labels[rows]))

    return Splits(train=part(order[:train_count]), test=part(order[train_count:]))


RECIPE = Recipe(
    model=DigitsNet,
    data=load,
    defaults={
        "epochs": 12,
        "batch_size": 64,
        "optimizer": {"name": "AdamW", "lr": 3e-3, "weight_decay": 1e-2},
        "scheduler": {"name": "OneCycleLR", "max_lr": 6e-3, "pct_start": 0.2},
    },
    summary="a convolutional net on 1,797 handwritten digits",
)
