"""A model for ``tenon train``; in its fourth step the last rank fails in the way that ``HOW`` names, if any.

Before it fails, the rank writes the time to the file ``CLOCK``. Where ``LEAVE`` ranks are left, none fails.
"""

import os
import signal
import sys
import time

import numpy as np

import tenon
from tenon import nn
from tenon.data import Splits, TensorDataset
from tenon.distributed import get_rank, get_world_size

HOW, LEAVE = os.environ.get("HOW"), int(os.environ.get("LEAVE", "0"))


def is_last():
    return get_rank() == get_world_size() - 1


def start_clock():
    with open(os.environ["CLOCK"], "w") as file:
        file.write(repr(time.time()))


if HOW == "import" and is_last():
    start_clock()
    import a_module_that_is_not_there  # noqa: F401


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if HOW and self.calls == 4 and is_last() and get_world_size() > LEAVE:
            start_clock()
            self.fail()
        return self.layers(x)

    def fail(self):
        match HOW:
            case "exception":
                raise ValueError("a bad value")
            case "exit":
                sys.exit(3)
            case "raised_exit":
                raise SystemExit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)


def load():
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 6)).astype(np.float32)
    y = (x[:, :3] + x[:, 3:]).argmax(1)
    x, y = tenon.from_numpy(x), tenon.from_numpy(y)
    return Splits(TensorDataset(x[:90], y[:90]), TensorDataset(x[90:], y[90:]))
