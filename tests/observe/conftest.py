"""A small model to profile, and a training run of two real ranks, made once."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

import tenon
from tenon import nn
from tenon.plugins.manager import register, unregister
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


@pytest.fixture
def plug():
    """`plug(hook)`: a plugin whose observers are the result of `hook(session)`."""
    names = []

    def offer(hook):
        names.append(f"sink {len(names)}")
        plugin = ModuleType(names[-1])
        plugin.tenon_open_observers = tenon.extend.hookimpl(hook)
        register(plugin, names[-1])

    yield offer
    for name in names:
        unregister(name)


@pytest.fixture(scope="session")
def run_ranks():
    """`run_ranks(count, *command)`: what `python *command` prints on that many ranks."""

    def run(count, *command):
        done = subprocess.run(
            [find_mpirun(), "-n", str(count), sys.executable, *map(str, command)],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory, run_ranks):
    """The folder of `mpirun -n 2 tenon train digits --profile`."""
    folder = tmp_path_factory.mktemp("two") / "run"
    settings = ["epochs=1", "batch_size=256", "profile.active=2", "profile.skip_first=1", "profile.warmup=1"]
    changed = [word for setting in settings for word in ("--set", setting)]
    run_ranks(2, "-m", "tenon.cli", "train", "digits", "--profile", "--run", folder, *changed)
    return folder
