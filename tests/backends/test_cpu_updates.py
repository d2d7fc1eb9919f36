"""Optimizer rules by NumPy in place: bit-identical to the rule on arrays, and no reference to gradients is kept."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.optim import fused
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.kernels import updates

SETTINGS = [
    ("SGD", {}, True),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}, True),
    ("Adam", {"weight_decay": 0.1, "amsgrad": True}, True),
    ("AdamW", {"maximize": True}, True),
    ("RMSprop", {"momentum": 0.9, "centered": True}, True),
    ("Adagrad", {"lr_decay": 0.1}, True),
    ("Adamax", {}, True),
    ("Rprop", {}, False),  # selects, which is not a ufunc
]
IDS = [f"{name}-{'-'.join(options)}" for name, options, _ in SETTINGS]
SHAPES = [(300, 310), (7,), (90, 100)]


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    monkeypatch.setattr(llvm, "available", lambda: False)
    monkeypatch.setattr(fused, "COMPILE_AFTER", 1)
    monkeypatch.setattr(fused, "_KERNELS", {})


def train(name, options, steps=5):
    draw = np.random.default_rng(0)
    ps = [nn.Parameter(tenon.tensor(draw.standard_normal(s).astype(np.float32))) for s in SHAPES]
    optimizer = getattr(tenon.optim, name)(ps, **options)
    for _ in range(steps):
        for p in ps:
            grad = draw.standard_normal(tuple(p.shape)).astype(np.float32)
            grad.flat[:5] = [np.nan, np.inf, -np.inf, 0.0, 1e-42]
            p.grad = tenon.tensor(grad)
        optimizer.step()
    states = [v.raw.tobytes() for p in ps for _, v in sorted(optimizer.state.get(p, {}).items())]
    return optimizer, [p.raw.tobytes() for p in ps] + states


@pytest.mark.parametrize(("name", "options", "fuses"), SETTINGS, ids=IDS)
@pytest.mark.parametrize("block", [1 << 16, 1000])
def test_ufuncs_in_place_give_the_bits_of_the_rule_on_arrays(monkeypatch, name, options, fuses, block):
    runs = []
    monkeypatch.setattr(updates, "BLOCK", block)
    monkeypatch.setattr(updates.UpdateTable, "run", _noted(runs, updates.UpdateTable.run))

    found = train(name, options)[1]

    assert bool(runs) is fuses
    monkeypatch.setattr(fused, "COMPILE_AFTER", 1 << 62)
    assert found == train(name, options)[1]


def _noted(runs, run):
    def noted(table, numbers):
        runs.append(numbers)
        run(table, numbers)

    return noted


def test_a_step_keeps_no_gradient():
    optimizer, _ = train("Adam", {})
    p = optimizer.param_groups[0]["params"][0]
    held = weakref.ref(p.grad.raw)

    p.grad = None

    assert held() is None


def test_many_small_arrays_are_left_to_a_flat_one():
    update = updates.EachUpdate([], [], 1)
    small, large = [np.zeros(100, np.float32)] * 50, [np.zeros(1 << 13, np.float32)] * 3

    assert update.over([small]) is None
    assert update.over([large]) is not None
