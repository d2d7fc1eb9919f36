"""Conformance of learning-rate schedules: subclass, name the schedule, and pytest runs every check.

::

    class TestHalving(SchedulerSuite):
        scheduler = "Halving"

        def rate(self, step, base):
            return base / 2**step
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from tenon.nn.parameter import Parameter
from tenon.optim import lr_scheduler
from tenon.optim.optimizer import Optimizer
from tenon.optim.scheduler import LRScheduler
from tenon.plugins import registry
from tenon.tensors.creation.create import tensor
from tenon.tensors.creation.factories import ones
from tenon.tensors.tensor import Tensor
from tenon.testing.suites.files import saved_and_loaded

#: The rates of two groups.
BASES = (0.1, 0.03)


class SchedulerSuite:
    """Checks of ``scheduler``: a name in ``tenon.optim.lr_scheduler``, or a class."""

    #: The schedule under test.
    scheduler: ClassVar[str | type[LRScheduler]] = ""
    #: Arguments besides the optimizer.
    options: ClassVar[Mapping[str, Any]] = {}  # as its constructor states
    #: Steps that the checks make; a schedule may end after them.
    steps: ClassVar[int] = 12
    #: Options of a group that the schedule changes.
    changes: ClassVar[Sequence[str]] = ("lr",)

    def rate(self, step: int, base: float) -> float:
        """Return the rate after ``step`` steps of a group that began with ``base``; to be overridden."""
        pytest.skip(f"{type(self).__name__} defines no rate(step, base) to compare with")

    def make(self, optimizer: Optimizer) -> LRScheduler:
        """Create the schedule of ``optimizer``; to be overridden where its arguments depend on that."""
        cls = self.scheduler
        return (getattr(lr_scheduler, cls) if isinstance(cls, str) else cls)(optimizer, **self.options)

    def advance(self, schedule: LRScheduler, number: int) -> None:
        """Make the step ``number`` of ``schedule``, from 1; override it for one that takes a metric."""
        schedule.step()

    # --- helpers of the checks ---

    def optimizer(self, *bases: float | Tensor) -> Optimizer:
        """Create an optimizer with a group for each of ``bases``."""
        cls = registry.resolve_class("optimizers", "SGD", Optimizer)
        groups = [{"params": [Parameter(ones(2))], "lr": base} for base in bases]
        return cls(groups, lr=1.0, momentum=0.9, weight_decay=0.01)

    def rates(self, schedule: LRScheduler, optimizer: Optimizer, first: int, last: int) -> list[list[float]]:
        """Return the rates of all groups now, and after each of the steps ``first + 1`` to ``last``."""
        found = [_rates_of(optimizer)]
        for number in range(first + 1, last + 1):
            optimizer.step()
            self.advance(schedule, number)
            found.append(_rates_of(optimizer))
        return found

    # --- the checks ---

    def test_rates_follow_the_reference(self) -> None:
        """The rate of each group at each step is that of ``rate``."""
        expected = [[self.rate(step, base) for base in BASES] for step in range(self.steps + 1)]
        optimizer = self.optimizer(*BASES)
        actual = self.rates(self.make(optimizer), optimizer, 0, self.steps)
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-12)

    def test_rates_are_finite_and_not_negative(self) -> None:
        """No rate is NaN, infinite or below 0."""
        optimizer = self.optimizer(*BASES)
        rates = np.array(self.rates(self.make(optimizer), optimizer, 0, self.steps))
        wrong = rates[~(np.isfinite(rates) & (rates >= 0))]
        assert wrong.size == 0, f"rates {wrong.tolist()}"

    def test_groups_are_scheduled_by_themselves(self) -> None:
        """A group beside others has the rates that it has alone."""
        together = self.optimizer(*BASES)
        rates = self.rates(self.make(together), together, 0, self.steps)
        for index, base in enumerate(BASES):
            alone = self.optimizer(base)
            own = self.rates(self.make(alone), alone, 0, self.steps)
            np.testing.assert_allclose([each[index] for each in rates], np.ravel(own), rtol=1e-9)

    def test_get_last_lr_returns_the_rates(self) -> None:
        """``get_last_lr`` has what the groups have, from the construction on."""
        optimizer = self.optimizer(*BASES)
        schedule = self.make(optimizer)
        for number in range(1, self.steps + 1):
            assert [float(r) for r in schedule.get_last_lr()] == _rates_of(optimizer), f"before step {number}"
            optimizer.step()
            self.advance(schedule, number)

    def test_other_options_are_left_alone(self) -> None:
        """Only the options in ``changes`` differ after a step."""
        optimizer = self.optimizer(*BASES)
        before = [_options_of(group) for group in optimizer.param_groups]
        self.rates(self.make(optimizer), optimizer, 0, 3)
        allowed = {*self.changes, "initial_lr"}
        for old, group in zip(before, optimizer.param_groups, strict=True):
            new = _options_of(group)
            changed = {name for name in {*old, *new} - allowed if old.get(name) != new.get(name)}
            added = {name for name in changed if name not in old}
            assert changed <= added, (
                f"changes {sorted(changed - added)}; list them in `changes` if it is meant"
            )

    @pytest.mark.parametrize("done", [0, 1, 5])
    def test_a_restored_schedule_goes_on(self, done: int) -> None:
        """State that was saved in a file and loaded continues with the same rates."""
        optimizer = self.optimizer(*BASES)
        schedule = self.make(optimizer)
        self.rates(schedule, optimizer, 0, done)
        state = saved_and_loaded({"schedule": schedule.state_dict(), "optimizer": optimizer.state_dict()})
        expected = self.rates(schedule, optimizer, done, self.steps)

        other = self.optimizer(*BASES)
        restored = self.make(other)
        other.load_state_dict(state["optimizer"])
        restored.load_state_dict(state["schedule"])
        np.testing.assert_allclose(self.rates(restored, other, done, self.steps), expected, rtol=1e-9)

    def test_loading_leaves_the_state_as_it_is(self) -> None:
        """``load_state_dict`` does not change the dict that it is given."""
        optimizer = self.optimizer(*BASES)
        schedule = self.make(optimizer)
        self.rates(schedule, optimizer, 0, 2)
        state = schedule.state_dict()
        kept = copy.deepcopy(state)
        other = self.optimizer(*BASES)
        self.make(other).load_state_dict(state)
        assert _plain(state) == _plain(kept), "load_state_dict changes the state that it is given"

    def test_rates_that_are_tensors_are_updated_in_place(self) -> None:
        """A tensor as rate, which compiled steps refer to, stays the same object and has the same values."""
        optimizer, plain = self.optimizer(*map(tensor, BASES)), self.optimizer(*BASES)
        kept = [group["lr"] for group in optimizer.param_groups]
        actual = self.rates(self.make(optimizer), optimizer, 0, self.steps)
        expected = self.rates(self.make(plain), plain, 0, self.steps)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
        for group, before in zip(optimizer.param_groups, kept, strict=True):
            assert group["lr"] is before, "a rate that is a tensor was replaced"

    def test_something_else_than_an_optimizer_is_refused(self) -> None:
        """A model in place of the optimizer is a TypeError."""
        with pytest.raises(TypeError):
            self.make(object())  # type: ignore[arg-type]  # what is checked


def _rates_of(optimizer: Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def _options_of(group: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in group.items() if name != "params"}


def _plain(state: object) -> object:
    """``state`` with tensors as lists, to be compared."""
    if isinstance(state, Mapping):
        return {key: _plain(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [_plain(value) for value in state]
    return state.tolist() if isinstance(state, Tensor) else state
