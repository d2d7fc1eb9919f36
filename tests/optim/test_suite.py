"""Every first-party optimizer passes the suite that third parties use, with a reference in NumPy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from tenon.testing import OptimizerSuite

pytestmark = pytest.mark.together


class TestSGD(OptimizerSuite):
    optimizer = "SGD"
    options: ClassVar = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}

    def reference(self, p, g, state, step, h):
        g = g + h.weight_decay * p
        state["b"] = g if step == 1 else h.momentum * state["b"] + g
        return p - h.lr * state["b"]


class TestPlainSGD(OptimizerSuite):
    optimizer = "SGD"

    def reference(self, p, g, state, step, h):
        return p - h.lr * g


class TestAdam(OptimizerSuite):
    optimizer = "Adam"
    options: ClassVar = {"lr": 0.01, "weight_decay": 0.1}

    def reference(self, p, g, state, step, h):
        return adam(p, g + h.weight_decay * p, state, step, h)


class TestAmsgrad(OptimizerSuite):
    optimizer = "Adam"
    options: ClassVar = {"lr": 0.01, "amsgrad": True, "betas": (0.5, 0.6)}

    def reference(self, p, g, state, step, h):
        return adam(p, g, state, step, h)


class TestAdamW(OptimizerSuite):
    optimizer = "AdamW"
    options: ClassVar = {"lr": 0.01}

    def reference(self, p, g, state, step, h):
        return adam(p * (1 - h.lr * h.weight_decay), g, state, step, h)


class TestRMSprop(OptimizerSuite):
    optimizer = "RMSprop"
    options: ClassVar = {"momentum": 0.5, "centered": True}

    def reference(self, p, g, state, step, h):
        state["v"] = h.alpha * state.get("v", 0) + (1 - h.alpha) * g**2
        state["m"] = h.alpha * state.get("m", 0) + (1 - h.alpha) * g
        scaled = g / (np.sqrt(state["v"] - state["m"] ** 2) + h.eps)
        state["b"] = h.momentum * state.get("b", 0) + scaled
        return p - h.lr * state["b"]


class TestAdagrad(OptimizerSuite):
    optimizer = "Adagrad"
    options: ClassVar = {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.1}

    def reference(self, p, g, state, step, h):
        state["sum"] = state.get("sum", h.initial_accumulator_value) + g**2
        return p - h.lr / (1 + (step - 1) * h.lr_decay) * g / (np.sqrt(state["sum"]) + h.eps)


def adam(p, g, state, step, h):
    first, second = h.betas
    state["m"] = first * state.get("m", 0) + (1 - first) * g
    state["v"] = second * state.get("v", 0) + (1 - second) * g**2
    corrected = state["v"]
    if h.amsgrad:
        corrected = state["max"] = np.maximum(state.get("max", 0), state["v"])
    corrected = corrected / (1 - second**step)
    return p - h.lr * state["m"] / (1 - first**step) / (np.sqrt(corrected) + h.eps)
