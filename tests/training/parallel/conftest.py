"""A project whose model has blocks of layers, which meshes of several dimensions divide."""

import functools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from divided_runs import weights

MODEL = """
import numpy as np

import tenon
from tenon import nn
from tenon.data import Splits, TensorDataset


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.drop, self.down = nn.Dropout(dropout), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.drop(nn.functional.gelu(self.up(self.norm(x)))))


class Net(nn.Module):
    tensor_parallel_plan = {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}

    def __init__(self, depth=4, dropout=0.1, normalised=False):
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16) if normalised else nn.Identity()
        self.blocks = nn.ModuleList(Block(16, dropout) for _ in range(depth))
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        x = self.norm(self.first(x))
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def load(train=70, test=31, masked=False) -> Splits:
    random = np.random.default_rng(0)
    x = random.normal(size=(train + test, 6)).astype(np.float32)
    y = (x[:, :3] + x[:, 3:]).argmax(1)
    if masked:
        y[random.random(train + test) < 0.4] = -100
    x, y = tenon.from_numpy(x), tenon.from_numpy(y)
    return Splits(TensorDataset(x[:train], y[:train]), TensorDataset(x[train:], y[train:]))
"""

CONFIG = """
model = "blocky:Net"
data = "blocky:load"
epochs = 2
batch_size = 20
clip_grad_norm = 1.0
parallel.modules = ["blocks.*"]

[optimizer]
name = "SGD"
lr = 0.1
momentum = 0.9

[log]
tensorboard = false
"""


@pytest.fixture
def blocky(project):
    (project.folder / "blocky.py").write_text(MODEL)
    (project.folder / "my.toml").write_text(CONFIG)
    return project


@pytest.fixture(scope="session")
def whole(tmp_path_factory, make_project):
    """``whole(*options)``: the weights after a run on one rank."""
    made = make_project(tmp_path_factory.mktemp("whole"))
    (made.folder / "blocky.py").write_text(MODEL)
    (made.folder / "my.toml").write_text(CONFIG)
    return functools.cache(lambda *options: weights(made.train("my.toml", *options)))
