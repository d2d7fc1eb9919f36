"""Every first-party rule inside a compiled step trains as it does eagerly, with a schedule and without re-records."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import nn

RULES = {
    "Adadelta": {},
    "Adafactor": {},
    "Adamax": {},
    "ASGD": {"lr": 0.05, "t0": 2.0},
    "LAMB": {},
    "LARS": {"lr": 0.5, "weight_decay": 0.01},
    "Lion": {"lr": 0.01},
    "Muon": {"lr": 0.01},
    "NAdam": {},
    "RAdam": {"betas": (0.9, 0.9)},
    "Rprop": {},
    "SGDScheduleFree": {"lr": 0.1, "warmup_steps": 3},
    "AdamWScheduleFree": {"weight_decay": 0.01},
}


def losses(name, options, compiled):
    tenon.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    if name == "Muon":  # for matrices only
        model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Tanh(), nn.Linear(8, 3, bias=False))
    optimizer = getattr(tenon.optim, name)(model.parameters(), **options)
    schedule = tenon.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    x, y = tenon.randn(16, 6), tenon.randint(0, 3, (16,))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    run = tenon.compile(step) if compiled else step
    return [run().item() for _ in range(12)], run


#: The others compile kernels of the same kinds.
QUICK = {"Adafactor", "NAdam", "Rprop", "SGDScheduleFree"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.manual) for n in RULES]
)
def test_a_compiled_step_trains_alike(name):
    eager, _ = losses(name, RULES[name], compiled=False)
    compiled, run = losses(name, RULES[name], compiled=True)

    np.testing.assert_allclose(compiled, eager, rtol=2e-5)
    assert eager[-1] < eager[0]
    assert run.programs
