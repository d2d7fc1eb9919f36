"""Run ``tenon train`` as a user does, in a folder of its own."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
PATH = os.pathsep.join([str(BIN), os.environ["PATH"]])

MODEL = """
import random as python
import numpy as np
import tenon
from tenon import nn
from tenon.data import Splits, TensorDataset


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


class Noisy(TensorDataset):
    # Adds what three generators draw.

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + 0.1 * (python.random() + np.random.rand() + tenon.rand(1)), y


def load(train: int = 90, test: int = 31, spoiled: bool = False, noisy: bool = False) -> Splits:
    random = np.random.default_rng(0)
    x = random.normal(size=(train + test, 6)).astype(np.float32)
    y = (x[:, :3] + x[:, 3:]).argmax(1)
    if spoiled:
        x[5] = np.nan
    x, y = tenon.from_numpy(x), tenon.from_numpy(y)
    kind = Noisy if noisy else TensorDataset
    return Splits(kind(x[:train], y[:train]), TensorDataset(x[train:], y[train:]))
"""

CONFIG = """
model = "small:Net"
data = "small:load"
epochs = 3
batch_size = 20

[optimizer]
name = "Adam"
lr = 0.02
"""


class Run:
    """What a finished `tenon train` left behind."""

    def __init__(self, done, folder):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.folder = folder

    @property
    def metrics(self):
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    @property
    def final(self):
        assert self.code == 0, self.err
        return self.metrics[-1]

    def saved(self):
        from tenon.serialize.checkpoint import read_latest

        return read_latest(self.folder / "checkpoints")[1]

    def weights(self):
        import tenon

        return tenon.cat([v.reshape(-1) for v in self.saved()["model"].values()]).numpy()


class Project:
    """A folder with a small model, its data and a configuration."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "small.py").write_text(MODEL)
        (folder / "my.toml").write_text(CONFIG)

    def install(self, name, code):
        """Make ``code`` the plugin ``name``, of a distribution that the runs of this project find."""
        site = self.folder / "site"
        facts = site / f"tenon_{name}-1.5.dist-info"
        facts.mkdir(parents=True)
        (site / f"tenon_{name}.py").write_text(code)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tenon-{name}\nVersion: 1.5\n")
        (facts / "entry_points.txt").write_text(f"[tenon]\n{name} = tenon_{name}\n")
        self.environment = {**self.environment, "PYTHONPATH": str(site)}

    environment = {**os.environ, "PATH": PATH, "PYTHONUNBUFFERED": "1"}

    def command(self, *arguments, ranks=1):
        launcher = [] if ranks == 1 else [shutil.which("mpirun", path=PATH), "-n", str(ranks)]
        return [*launcher, str(BIN / "tenon"), "train", *arguments]

    def train(self, *arguments, ranks=1, timeout=300):
        before = set(self.folder.glob("runs/*"))
        done = subprocess.run(
            self.command(*arguments, ranks=ranks),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.environment,
        )
        new = sorted(set(self.folder.glob("runs/*")) - before)
        return Run(done, new[0] if new else None)

    def resume(self, run, *arguments, ranks=1):
        """Resume ``run``; return the run as it is afterwards."""
        done = self.train("--resume", str(run.folder), *arguments, ranks=ranks)
        done.folder = run.folder
        return done


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """``finished("my.toml", ranks=2)``: a run that several tests look at and none changes."""
    project = Project(tmp_path_factory.mktemp("finished"))
    return functools.cache(lambda *arguments, ranks=1: project.train(*arguments, ranks=ranks))


@pytest.fixture(scope="session")
def make_project():
    return Project


@pytest.fixture(scope="session")
def one_epoch(tmp_path_factory):
    """The folder of a project with a finished run of one epoch of its own model, ``run``, which no test changes."""
    project = Project(tmp_path_factory.mktemp("epoch"))
    done = project.train("my.toml", "--set", "epochs=1", "--set", "log.tensorboard=false", "--run", "run")
    assert done.code == 0, done.err
    return project.folder
