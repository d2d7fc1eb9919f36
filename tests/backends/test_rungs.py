"""The CPU backend trains alike with NumPy alone, with compiled kernels, with oneDNN, and with both."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import json
import tenon
from tenon import nn
from tenon.nn import functional as F
from tenon_cpu.jit.compiler import compile as jit
from tenon_cpu.onednn import available

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 16, 3, padding=1)
        self.batch = nn.BatchNorm2d(16)
        self.pool = nn.MaxPool2d(2)
        self.embedding = nn.Embedding(50, 64)
        self.norm = nn.LayerNorm(64)
        self.queries = nn.Linear(64, 192)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(64, 10)

    def forward(self, x, words):
        x = self.pool(F.relu(self.batch(self.convolution(x)))).flatten(2).mT
        x = x.reshape(x.shape[0], -1, 64) + self.embedding(words)
        q, k, v = self.queries(self.norm(x)).reshape(x.shape[0], -1, 3, 4, 16).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.out(self.dropout(F.gelu(x)).mean(1))

def losses(compiled):
    tenon.manual_seed(0)
    net = Net()
    optimizer = tenon.optim.AdamW(net.parameters(), lr=1e-2)
    x, words = tenon.randn(16, 3, 24, 24), tenon.randint(50, (16, 36))
    labels = tenon.randint(10, (16,))

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x, words), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = tenon.compile(step, fullgraph=True) if compiled else step
    return [float(run()) for _ in range(8)]

print(json.dumps([jit.available(), available()[0], losses(False), losses(True)]))
"""
RUNGS = list(itertools.product("01", "01"))


def outcome(numba: str, onednn: str) -> list:
    env = os.environ | {"TENON_NUMBA": numba, "TENON_ONEDNN": onednn, "OMP_NUM_THREADS": "1"}
    process = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def plain() -> list[float]:
    """Losses of eager training with NumPy alone."""
    kernels, library, eager, compiled = outcome("0", "0")
    assert not kernels
    assert not library
    assert compiled == pytest.approx(eager, rel=1e-4)
    return eager


@pytest.mark.slow
@pytest.mark.parametrize(("numba", "onednn"), RUNGS[1:])
def test_a_rung_trains_as_numpy_alone_does(plain, numba, onednn):
    if numba == "1" and find_spec("numba") is None:
        pytest.skip("numba is not installed (extra `fast`)")
    *used, eager, compiled = outcome(numba, onednn)

    if onednn == "1" and not used[1]:
        pytest.skip("oneDNN is not installed (extra `fast`)")
    assert used == [numba == "1", onednn == "1"]
    assert eager == pytest.approx(plain, rel=2e-3)
    assert compiled == pytest.approx(plain, rel=2e-3)
    assert compiled[-1] < compiled[0] * 0.6
