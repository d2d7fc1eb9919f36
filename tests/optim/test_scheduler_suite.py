"""The schedules that come with tenon pass ``SchedulerSuite``, and each of its checks finds a planted bug."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest

from tenon.errors import TenonError
from tenon.extend import LRScheduler
from tenon.testing import SchedulerSuite


class TestStepLR(SchedulerSuite):
    scheduler = "StepLR"
    options: ClassVar = {"step_size": 3}

    def rate(self, step, base):
        return base * 0.1 ** (step // 3)


class TestExponentialLR(SchedulerSuite):
    scheduler = "ExponentialLR"
    options: ClassVar = {"gamma": 0.9}

    def rate(self, step, base):
        return base * 0.9**step


class TestCosineAnnealingLR(SchedulerSuite):
    scheduler = "CosineAnnealingLR"
    options: ClassVar = {"T_max": 12}

    def rate(self, step, base):
        return base * (1 + math.cos(math.pi * step / 12)) / 2


class TestPolynomialLR(SchedulerSuite):
    scheduler = "PolynomialLR"
    options: ClassVar = {"total_iters": 12, "power": 2}

    def rate(self, step, base):
        return base * (1 - step / 12) ** 2


class TestOthers:
    """Without references: `tests/optim` compares their rates with PyTorch's."""

    class TestConstantLR(SchedulerSuite):
        scheduler = "ConstantLR"

    class TestLinearLR(SchedulerSuite):
        scheduler = "LinearLR"

    class TestMultiStepLR(SchedulerSuite):
        scheduler = "MultiStepLR"
        options: ClassVar = {"milestones": [2, 5]}

    class TestMultiplicativeLR(SchedulerSuite):
        scheduler = "MultiplicativeLR"
        options: ClassVar = {"lr_lambda": lambda step: 0.9}

    class TestLambdaLR(SchedulerSuite):
        scheduler = "LambdaLR"
        options: ClassVar = {"lr_lambda": lambda step: 1 / (1 + step)}

    class TestOneCycleLR(SchedulerSuite):
        scheduler = "OneCycleLR"
        options: ClassVar = {"max_lr": 1.0, "total_steps": 20}
        changes = ("lr", "momentum")

    class TestCyclicLR(SchedulerSuite):
        scheduler = "CyclicLR"
        options: ClassVar = {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4}
        changes = ("lr", "momentum")

    class TestCosineAnnealingWarmRestarts(SchedulerSuite):
        scheduler = "CosineAnnealingWarmRestarts"
        options: ClassVar = {"T_0": 5}

    class TestWarmupCosineLR(SchedulerSuite):
        scheduler = "WarmupCosineLR"
        options: ClassVar = {"warmup_steps": 3, "total_steps": 20}

    class TestReduceLROnPlateau(SchedulerSuite):
        scheduler = "ReduceLROnPlateau"
        options: ClassVar = {"patience": 1}

        def advance(self, schedule, number):
            schedule.step(1.0)


class Right(LRScheduler):
    """Halves the rate at each step."""

    def get_lr(self):
        return [rate if self._is_initial else rate / 2 for rate in self._rates()]


class TestRight(SchedulerSuite):
    scheduler = Right

    def rate(self, step, base):
        return base / 2**step


class Off(Right):
    def get_lr(self):
        return [rate * 0.999 for rate in super().get_lr()]


class Negative(Right):
    def get_lr(self):
        return [0.1 - 0.03 * self.last_epoch for _ in self.base_lrs]


class Endless(Right):
    def get_lr(self):
        return [float("nan") if self.last_epoch == 7 else rate for rate in super().get_lr()]


class OfTheFirst(Right):
    def get_lr(self):
        return [super(OfTheFirst, self).get_lr()[0] for _ in self.base_lrs]


class Silent(Right):
    def get_last_lr(self):
        return self.base_lrs


class Decaying(Right):
    def get_lr(self):
        for group in self.optimizer.param_groups:
            group["weight_decay"] *= 0.5
        return super().get_lr()


class Forgetful(Right):
    def __init__(self, optimizer):
        self.seen = 0
        super().__init__(optimizer)

    def get_lr(self):
        self.seen += 1
        return [base / (1 + self.seen) for base in self.base_lrs]

    def state_dict(self):
        return {k: v for k, v in super().state_dict().items() if k != "seen"}


class Unsaveable(Right):
    def state_dict(self):
        return {**super().state_dict(), "rule": self.get_lr}


class Emptying(Right):
    def load_state_dict(self, state_dict):
        super().load_state_dict(dict(state_dict))
        state_dict.pop("last_epoch")


class Replacing(Right):
    def _set_rates(self, values):
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            group["lr"] = value
        self._last_lr = list(values)


class Trusting(Right):
    def __init__(self, optimizer):
        if hasattr(optimizer, "param_groups"):
            super().__init__(optimizer)


@pytest.mark.parametrize(
    ("planted", "check", "arguments"),
    [
        (Off, "test_rates_follow_the_reference", ()),
        (Negative, "test_rates_are_finite_and_not_negative", ()),
        (Endless, "test_rates_are_finite_and_not_negative", ()),
        (OfTheFirst, "test_groups_are_scheduled_by_themselves", ()),
        (Silent, "test_get_last_lr_returns_the_rates", ()),
        (Decaying, "test_other_options_are_left_alone", ()),
        (Forgetful, "test_a_restored_schedule_goes_on", (5,)),
        (Unsaveable, "test_a_restored_schedule_goes_on", (0,)),
        (Emptying, "test_loading_leaves_the_state_as_it_is", ()),
        (Replacing, "test_rates_that_are_tensors_are_updated_in_place", ()),
        (Trusting, "test_something_else_than_an_optimizer_is_refused", ()),
    ],
)
def test_planted_bugs_are_found(planted, check, arguments):
    class Suite(SchedulerSuite):
        scheduler = planted

        def rate(self, step, base):
            return base / 2**step

    with pytest.raises((AssertionError, TypeError, TenonError, pytest.fail.Exception)):
        getattr(Suite(), check)(*arguments)
