"""Kernels on a team of threads give the same bits as on one thread."""

from __future__ import annotations

import os

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon_cpu.jit.compiler import compile as jit
from tenon_cpu.jit.compiler import llvm, team
from tenon_cpu.jit.eager_ops import calls

BACKEND = tenon.zeros(1)._backend
pytestmark = pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}")
RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X, G, SQUARE = normal(211, 97), normal(211, 97), normal(5, 6, 40, 41)
WEIGHT, TABLE = normal(97), normal(50, 97)
COINS, TOKENS = RNG.random((211, 97)) < 0.5, RNG.integers(0, 50, 211)
CLASSES = RNG.integers(0, 97, 211)
CALLS = {
    "gelu": ("gelu", (X,), {}),
    "gelu-tanh": ("gelu", (X,), {"approximate": "tanh"}),
    "silu": ("silu", (X,), {}),
    "relu_grad": ("relu_grad", (G, X), {}),
    "softmax": ("softmax", (X,), {"axis": 1}),
    "softmax_grad": ("softmax_grad", (G, X), {"axis": 1}),
    "log_softmax": ("log_softmax", (X,), {"axis": 1}),
    "log_softmax_grad": ("log_softmax_grad", (G, X), {"axis": 1}),
    "layer_norm": ("layer_norm", (X, WEIGHT, WEIGHT), {"rank": 1}),
    "layer_norm_grad": (
        "layer_norm_grad", (G, X, WEIGHT, normal(211, 1), normal(211, 1)), {"rank": 1, "needs": (True,) * 3},
    ),
    "cross_entropy": ("cross_entropy", (X, CLASSES, None), {}),
    "cross_entropy_grad": ("cross_entropy_grad", (np.float32(1), X, normal(211, 1), CLASSES, None), {}),
    "embedding": ("embedding", (TABLE, TOKENS), {}),
    "embedding_grad": ("embedding_grad", (G, TOKENS), {"rows": 50}),
    "where-arrays": ("where", (COINS, X, G), {}),
    "where-number": ("where", (COINS, X, 0.5), {}),
    "where-repeated": ("where", (SQUARE[0, 0] > 0, 0.5, SQUARE), {}),
    "sum": ("sum", (SQUARE,), {"axes": (0, 2, 3)}),
}  # fmt: skip


@pytest.fixture
def two(monkeypatch):
    """A team of two threads, and the kernels that it ran."""
    before, seen = llvm.team_size(), []
    run = team.run
    monkeypatch.setattr(calls, "SHARED", 0)
    monkeypatch.setattr(team, "several", lambda: True)
    monkeypatch.setattr(
        team, "run", lambda kernel, *given: seen.append(kernel.__name__) or run(kernel, *given)
    )
    llvm.set_team_size(2)
    yield seen
    llvm.set_team_size(before)


def called(name):
    op, args, attrs = CALLS[name]
    made = BACKEND.kernels[getattr(ops, op)](*args, **attrs)
    return [np.asarray(m).tobytes() for m in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("name", CALLS)
def test_a_team_gives_what_one_thread_gives_bit_for_bit(monkeypatch, two, name):
    together = called(name)
    assert len(two) == 1

    monkeypatch.setattr(calls, "SHARED", 1 << 62)
    assert together == called(name)
    assert len(two) == 1


@pytest.mark.parametrize("name", ["embedding", "cross_entropy"])
def test_a_team_finds_an_index_outside_wherever_it_stands(two, name):
    for place in (0, 100, 210):
        op, (first, indices, *rest), attrs = CALLS[name]
        wrong = indices.copy()
        wrong[place] = 1000

        with pytest.raises(IndexError, match="1000"):
            getattr(ops, op)(tenon.from_numpy(first), tenon.from_numpy(wrong), *rest, **attrs)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_works_alone(two):
    expected = called("softmax")

    child = os.fork()
    if not child:
        os._exit(0 if called("softmax") == expected else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
