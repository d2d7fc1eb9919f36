"""Optimizers beyond the first five pass the suite too; references in NumPy for those that torch lacks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from tenon.extend import Optimizer
from tenon.testing import OptimizerSuite

pytestmark = pytest.mark.together


class TestAdadelta(OptimizerSuite):
    optimizer = "Adadelta"


class TestAdamax(OptimizerSuite):
    optimizer = "Adamax"


class TestASGD(OptimizerSuite):
    optimizer = "ASGD"
    options: ClassVar = {"t0": 2.0}


class TestNAdam(OptimizerSuite):
    optimizer = "NAdam"


class TestRAdam(OptimizerSuite):
    optimizer = "RAdam"
    options: ClassVar = {"betas": (0.9, 0.9)}


class TestRprop(OptimizerSuite):
    optimizer = "Rprop"


class TestAdafactor(OptimizerSuite):
    optimizer = "Adafactor"


class TestLion(OptimizerSuite):
    optimizer = "Lion"
    options: ClassVar = {"lr": 0.01, "weight_decay": 0.1}

    def reference(self, p, g, state, step, h):
        m = state.get("m", np.zeros_like(p))
        state["m"] = h.betas[1] * m + (1 - h.betas[1]) * g
        moved = np.sign(h.betas[0] * m + (1 - h.betas[0]) * g)
        return p - h.lr * (moved + h.weight_decay * p)


class TestLARS(OptimizerSuite):
    optimizer = "LARS"
    options: ClassVar = {"weight_decay": 0.1, "trust_coefficient": 0.1}

    def reference(self, p, g, state, step, h):
        if p.ndim > 1 and p.size:
            size, slope = np.linalg.norm(p), np.linalg.norm(g)
            g = (
                h.trust_coefficient
                * size
                / (slope + h.weight_decay * size + h.eps)
                * (g + h.weight_decay * p)
            )
        state["b"] = h.momentum * state.get("b", 0.0) + g
        return p - h.lr * state["b"]


class TestLAMB(OptimizerSuite):
    optimizer = "LAMB"

    def reference(self, p, g, state, step, h):
        m = state["m"] = h.betas[0] * state.get("m", 0.0) + (1 - h.betas[0]) * g
        v = state["v"] = h.betas[1] * state.get("v", 0.0) + (1 - h.betas[1]) * g**2
        moved = m / (1 - h.betas[0] ** step) / (np.sqrt(v / (1 - h.betas[1] ** step)) + h.eps)
        moved = moved + h.weight_decay * p
        length = np.linalg.norm(moved)
        return p - h.lr * (np.linalg.norm(p) / length if length else 1.0) * moved


def average(y, state, step, h, beta, moved):
    """Return ``y`` after one schedule-free step by ``moved``; here ``x`` is stored explicitly, unlike in the rule."""
    z = state.get("z", y)
    x = state.get("x", y)
    rate = h.lr * min(1.0, step / max(h.warmup_steps, 1))
    state["most"] = max(state.get("most", 0.0), rate)
    weight = step**h.r * state["most"] ** h.weight_lr_power
    state["sum"] = state.get("sum", 0.0) + weight
    z = state["z"] = z - rate * moved
    share = weight / state["sum"]
    x = state["x"] = (1 - share) * x + share * z
    return beta * x + (1 - beta) * z


class TestSGDScheduleFree(OptimizerSuite):
    optimizer = "SGDScheduleFree"
    options: ClassVar = {"lr": 0.1, "weight_decay": 0.1, "warmup_steps": 4, "r": 0.5}

    def reference(self, p, g, state, step, h):
        return average(p, state, step, h, h.momentum, g + h.weight_decay * p)


class TestAdamWScheduleFree(OptimizerSuite):
    optimizer = "AdamWScheduleFree"
    options: ClassVar = {"lr": 0.01, "weight_decay": 0.1}

    def reference(self, p, g, state, step, h):
        v = state["v"] = h.betas[1] * state.get("v", 0.0) + (1 - h.betas[1]) * g**2
        moved = g / (np.sqrt(v / (1 - h.betas[1] ** step)) + h.eps) + h.weight_decay * p
        return average(p, state, step, h, h.betas[0], moved)


class Writing(Optimizer):
    """Writes into the gradient."""

    defaults: ClassVar = {"lr": 0.1}
    elementwise = True

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def update(self, f, p, g, s, h):
        g *= 2
        return p - h.lr * g, {}


def test_a_rule_that_writes_into_the_gradient_is_found():
    class Suite(OptimizerSuite):
        optimizer = Writing

    with pytest.raises(AssertionError):
        Suite().test_gradients_are_not_changed("cpu")
