"""Optimizers, schedulers and initialisers in both libraries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from parity.functions import SEED
from parity.sides import Side, as_numpy, check, find, make, tolerance_of

import tenon

STEPS = 20


class Run:
    """A small model in one library and an optimizer of it: two groups, where torch takes two."""

    def __init__(self, lib: Any, name: str, options: dict[str, Any], dtype: str, way: int) -> None:
        self.lib = lib
        kind = getattr(lib, dtype)
        self.first, self.bias, self.second = (
            lib.nn.Parameter(lib.from_numpy(make(spec, i).copy()).to(kind))
            for i, spec in enumerate(("f:3,4", "f:4", "f:4,2"))
        )
        self.x, self.y = (lib.from_numpy(make(spec).copy()).to(kind) for spec in ("f:6,3", "f:6,2"))
        matrices = [{"params": [self.first]}, {"params": [self.second]}]
        groups = [{"params": [self.first, self.bias]}, {"params": [self.second]}]
        if "lr" in options and isinstance(options["lr"], float):
            matrices[1]["lr"] = groups[1]["lr"] = options["lr"] / 2
        every = [self.first, self.bias, self.second]
        self.parameters = (groups, matrices, every)[way]
        self.trained = [self.first, self.second] if way == 1 else every
        self.options = options
        self.optimizer = self.fresh(name)

    def fresh(self, name: str) -> Any:
        return find(self.lib, name)(self.parameters, **Side(self.lib, None).build(self.options))

    def closure(self) -> Any:
        self.optimizer.zero_grad()
        loss = (((self.x @ self.first + self.bias).tanh() @ self.second - self.y) ** 2).mean()
        loss.backward()
        return loss

    def go(self, steps: int) -> float:
        return [self.optimizer.step(self.closure) for _ in range(steps)][-1].item()


def _way(torch: Any, name: str, options: dict[str, Any]) -> int:
    """Which parameters torch's optimizer takes: all in groups, matrices in groups, or one list."""
    for way in range(3):
        try:
            Run(torch, name, options, "float32", way)
        except ValueError:
            continue
        return way
    raise AssertionError(f"torch's {name} takes no parameters with {options}")


def compare_optimizer(torch: Any, name: str, options: dict[str, Any], dtype: str) -> None:
    """20 steps; then its state, loaded into a new optimizer, goes on as if nothing had happened."""
    way = _way(torch, name, options)
    ours, theirs = (Run(lib, name, options, dtype, way) for lib in (tenon, torch))
    tolerance = tolerance_of([], dtype)
    for steps in (STEPS, 5):
        losses = [run.go(steps) for run in (ours, theirs)]
        assert math.isclose(*losses, rel_tol=tolerance, abs_tol=tolerance), losses
        for position, (a, b) in enumerate(zip(ours.trained, theirs.trained, strict=True)):
            check(a, b, tolerance, f"parameter {position}")
        _check_state(ours.optimizer.state_dict(), theirs.optimizer.state_dict(), tolerance)
        for run in (ours, theirs):
            saved = run.optimizer.state_dict()
            run.optimizer = run.fresh(name)
            run.optimizer.load_state_dict(saved)
            _check_state(run.optimizer.state_dict(), saved, 0)


def _check_state(ours: dict[str, Any], theirs: dict[str, Any], tolerance: float) -> None:
    assert set(ours["state"]) == set(theirs["state"])
    for key, entries in theirs["state"].items():
        mine = ours["state"][key]
        assert set(mine) == set(entries), f"state of parameter {key}"
        for what, value in entries.items():
            if hasattr(value, "detach"):
                a, b = as_numpy(mine[what]), as_numpy(value)
                np.testing.assert_allclose(a, b, tolerance, tolerance, err_msg=f"{what} of parameter {key}")
    for mine, group in zip(ours["param_groups"], theirs["param_groups"], strict=True):
        assert set(group) <= set(mine) and mine["params"] == group["params"]
        assert mine["lr"] == group["lr"]


def _scheduled(lib: Any, name: str, args: Any) -> tuple[Any, Any]:
    parameters = [lib.nn.Parameter(lib.ones(2)) for _ in range(2)]
    groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.3}]
    optimizer = lib.optim.SGD(groups, lr=0.5, momentum=0.9)
    for p in parameters:
        p.grad = lib.ones(2)
    return optimizer, construct(Side(lib, None), name, args, optimizer)


def construct(side: Side, name: str, args: Any, optimizer: Any) -> Any:
    """A scheduler of ``optimizer``; schedulers among its arguments are mappings with ``scheduler``."""

    def inner(value: Any) -> Any:
        if isinstance(value, dict) and "scheduler" in value:
            return construct(side, value["scheduler"], value.get("make", []), optimizer)
        return [inner(v) for v in value] if isinstance(value, list) else value

    *positional, last = [inner(a) for a in args] or [{}]
    keywords = last if isinstance(last, dict) else {}
    positional = positional if isinstance(last, dict) else [*positional, last]
    keywords = {k: inner(v) for k, v in keywords.items()}
    first = () if name.endswith("ChainedScheduler") else (optimizer,)
    return find(side.lib, name)(*first, *map(side.build, positional), **side.build(keywords))


def _step(optimizer: Any, scheduler: Any, number: int) -> list[float]:
    optimizer.step()
    if type(scheduler).__name__ == "ReduceLROnPlateau":
        scheduler.step(1 / (1 + min(number, 8)) + 0.01 * (number % 3))
    else:
        scheduler.step()
    return [float(group[k]) for group in optimizer.param_groups for k in ("lr", "momentum")]


def compare_scheduler(torch: Any, name: str, args: Any) -> None:
    """30 steps give the same rates and momenta; after 15 the state moves into a new scheduler."""
    rates: list[Any] = []
    for lib in (tenon, torch):
        optimizer, scheduler = _scheduled(lib, name, args)
        seen = [_step(optimizer, scheduler, i) for i in range(15)]
        saved = scheduler.state_dict(), optimizer.state_dict()
        optimizer, scheduler = _scheduled(lib, name, args)
        scheduler.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        rates.append((seen + [_step(optimizer, scheduler, i) for i in range(15, 30)], set(saved[0])))
    (ours, our_keys), (theirs, their_keys) = rates
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)
    assert {k for k in their_keys if not k.startswith("_")} <= our_keys


def compare_initialiser(torch: Any, name: str, args: Any, dtype: str) -> None:
    """The same seed gives the same numbers, to the bit."""
    found: list[Any] = []
    for lib in (tenon, torch):
        lib.manual_seed(SEED)
        found.append(Side(lib, dtype).construct(name, args))
    ours, theirs = found
    if not hasattr(theirs, "detach"):
        assert ours == theirs
        return
    assert str(ours.dtype) == str(theirs.dtype) and ours.requires_grad == theirs.requires_grad
    exact = not name.endswith("orthogonal_")  # torch's LAPACK rounds otherwise than NumPy's
    check(ours, theirs, 0 if exact else tolerance_of([], dtype), name)
