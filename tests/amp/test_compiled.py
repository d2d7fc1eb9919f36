"""Compiled programs in autocast regions: the same numbers as eager, few steps, and training like float32's."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.nn import functional as F
from tenon_cpu.jit.compiler import llvm

WIDTH, HEADS, LENGTH, BATCH = 32, 2, 16, 4


class Block(nn.Module):
    """Attention and a feed-forward part, written out."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, mask):
        shape = (BATCH, LENGTH, HEADS, WIDTH // HEADS)
        q, k, v = (p.view(shape).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(WIDTH, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (WIDTH // HEADS) ** -0.5
        seen = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v
        x = x + self.out(seen.transpose(1, 2).contiguous().view(BATCH, LENGTH, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A language model over bytes."""

    def __init__(self, words=32):
        super().__init__()
        self.words, self.block = nn.Embedding(words, WIDTH), Block()
        self.head = nn.Linear(WIDTH, words)
        self.mask = tenon.triu(tenon.ones(LENGTH, LENGTH), diagonal=1).bool()

    def forward(self, text):
        return self.head(self.block(self.words(text), self.mask))


def training(enabled, compiled):
    """Return a function that makes a training step and returns its loss, and the compiled program once there is one."""
    tenon.manual_seed(0)
    net = Model()
    optimizer = tenon.optim.AdamW(net.parameters(), lr=3e-3)

    def step(text, targets):
        optimizer.zero_grad()
        with tenon.autocast("cpu", enabled=enabled):
            loss = F.cross_entropy(net(text).view(-1, 32), targets.view(-1))
        loss.backward()
        optimizer.step()
        return loss

    return tenon.compile(step) if compiled else step


def batches(count):
    """Sequences in which each byte is determined by the one before."""
    made = np.random.default_rng(3)
    for _ in range(count):
        start = made.integers(0, 32, (BATCH, 1))
        text = (start + 5 * np.arange(LENGTH + 1)) % 32
        yield tenon.tensor(text[:, :-1].tolist()), tenon.tensor(text[:, 1:].tolist())


def curve(step, count):
    return [step(*batch).item() for batch in batches(count)]


#: Whether in autocast, and whether compiled.
WAYS = {"float32": (False, True), "eager": (True, False), "compiled": (True, True)}


@pytest.fixture(scope="module")
def curves():
    """Losses of 200 steps: in float32, and in autocast eagerly and compiled."""
    return {name: np.array(curve(training(*way), 200)) for name, way in WAYS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_200_steps_train_like_float32(curves, way):
    short, full = curves[way], curves["float32"]

    assert full[-1] < 0.1 * full[0]
    assert abs(short[0] - full[0]) < 0.01 * full[0]
    np.testing.assert_allclose(short, full, rtol=0.1, atol=0.05)


@pytest.mark.slow
def test_compiled_steps_follow_eager_ones():
    eager, compiled = (curve(training(*WAYS[way]), 30) for way in ("eager", "compiled"))
    np.testing.assert_allclose(compiled, eager, rtol=0.03)


@pytest.mark.skipif(not llvm.available(), reason="llvmlite is not installed")
def test_scaling_masking_and_softmax_of_short_floats_are_one_kernel():
    mask = tenon.triu(tenon.ones(64, 64), diagonal=1).bool()

    @tenon.compile
    def attend(x):
        return F.softmax((x * 0.25).masked_fill(mask, float("-inf")), dim=-1)

    for seed in range(4):
        tenon.manual_seed(seed)
        x = tenon.randn(8, 64, 64).bfloat16()
        made = attend(x)

    [program] = attend.programs
    assert [n.op.name for n in program.graph.calls] == ["fused"]
    assert made.dtype is tenon.bfloat16
    expected = F.softmax((x.float() * 0.25).masked_fill(mask, float("-inf")), dim=-1)
    np.testing.assert_allclose(made.float().numpy(), expected.numpy(), rtol=8e-3, atol=1e-6)


def test_a_region_around_calls_comes_and_goes():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    compiled, x = tenon.compile(model), tenon.randn(2, 4)

    for call in range(10):
        with tenon.autocast("cpu", enabled=call % 2 == 0):
            made, expected = compiled(x), model(x)
        assert made.dtype is expected.dtype is (tenon.float32 if call % 2 else tenon.bfloat16)
        np.testing.assert_allclose(
            made.detach().float().numpy(), expected.detach().float().numpy(), atol=0.02
        )

    assert len(compiled.programs) == 4  # of each kind a forward and a backward
