"""A small model to profile, and a training run of two real ranks, made once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tenon
from tenon import nn
from tenon.testing.suites.communicator import find_mpirun


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.body(x))


class Training:
    """Steps of a small model; ``step`` is one."""

    def __init__(self):
        self.model = Net()
        self.optimizer = tenon.optim.SGD(self.model.parameters(), lr=0.1)
        self.x, self.y = tenon.randn(32, 8), tenon.randint(0, 4, (32,))

    def step(self):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss


@pytest.fixture
def make_training():
    return Training


@pytest.fixture
def training():
    made = Training()
    made.step()
    return made


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory):
    """The folder of `mpirun -n 2 tenon train digits --profile`."""
    folder = tmp_path_factory.mktemp("two") / "run"
    command = [find_mpirun(), "-n", "2", sys.executable, "-m", "tenon.cli", "train", "digits", "--profile"]
    settings = [
        "--run",
        str(folder),
        "--set",
        "epochs=1",
        "--set",
        "batch_size=256",
        "--set",
        "profile.active=2",
    ]
    settings += ["--set", "profile.skip_first=1", "--set", "profile.warmup=1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *settings], capture_output=True, text=True, timeout=240, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
