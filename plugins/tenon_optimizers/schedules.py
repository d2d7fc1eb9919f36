"""Learning-rate schedules with a closed formula in the step count (torch.optim.lr_scheduler).

All but ``LambdaLR`` are chainable: each computes the next rate from the current one, so several can act on
one optimizer.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from tenon.extend import LRScheduler, Optimizer
from tenon.optim.scheduler import check_optimizer
from tenon.optim.types import Scalar, StateDict
from tenon_optimizers.functions import load_attributes, saved_attributes

#: A factor of the rate as a function of the step count.
LRLambda: TypeAlias = Callable[[int], float]


class _ByFunction(LRScheduler):
    """Base class of schedules whose factor is a user's function, or one function per group."""

    lr_lambdas: list[LRLambda]

    def __init__(
        self, optimizer: Optimizer, lr_lambda: LRLambda | Sequence[LRLambda], last_epoch: int = -1
    ) -> None:
        check_optimizer(optimizer)
        groups = len(optimizer.param_groups)
        if not isinstance(lr_lambda, (list, tuple)):
            self.lr_lambdas = [lr_lambda] * groups
        elif len(lr_lambda) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(lr_lambda)}")
        else:
            self.lr_lambdas = list(lr_lambda)
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> StateDict:
        """Return the state: functions are not saved, callable objects by their attributes."""
        return super().state_dict() | {"lr_lambdas": [saved_attributes(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore the state: attributes of callable objects; functions are kept."""
        saved = dict(state_dict)
        for function, attributes in zip(self.lr_lambdas, saved.pop("lr_lambdas"), strict=True):
            load_attributes(function, attributes)
        super().load_state_dict(saved)


class LambdaLR(_ByFunction):
    """The initial rate times ``lr_lambda(step)``; one function, or one per group.

    >>> import tenon
    >>> optimizer = tenon.optim.SGD([tenon.nn.Parameter(tenon.ones(1))], lr=1.0)
    >>> LambdaLR(optimizer, lambda step: 0.5 ** (step + 1)).get_last_lr()
    [0.5]
    """

    def get_lr(self) -> list[Scalar]:
        """Return the next learning rates, one per parameter group, computed from the initial ones."""
        self._warn_outside()
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_ByFunction):
    """The current rate times ``lr_lambda(step)``."""

    def get_lr(self) -> list[Scalar]:
        """Return the next learning rates, one per parameter group, computed from the current ones."""
        rates = self._rates()
        if self._is_initial:
            return rates
        return [rate * f(self.last_epoch) for f, rate in zip(self.lr_lambdas, rates, strict=True)]


class StepLR(LRScheduler):
    """The rate times ``gamma`` every ``step_size`` steps."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Scalar]:
        """Return the next learning rates, one per parameter group, computed from the current ones."""
        rates = self._rates()
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return rates
        return [rate * self.gamma for rate in rates]

    def _get_closed_form_lr(self) -> list[Scalar]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The rate times ``gamma`` at each of ``milestones``; twice where one is named twice."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Scalar]:
        """Return the next learning rates, one per parameter group, computed from the current ones."""
        rates = self._rates()
        if self.last_epoch not in self.milestones:
            return rates
        return [rate * self.gamma ** self.milestones[self.last_epoch] for rate in rates]

    def _get_closed_form_lr(self) -> list[Scalar]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The initial rate times ``factor`` for ``total_iters`` steps, then the initial rate."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Scalar]:
        """Return the next learning rates, one per parameter group, computed from the current ones."""
        rates = self._rates()
        if self.last_epoch == 0:
            return [rate * self.factor for rate in rates]
        if self.last_epoch != self.total_iters:
            return rates
        return [rate * (1.0 / self.factor) for rate in rates]

    def _get_closed_form_lr(self) -> list[Scalar]:
        factor = self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """From ``start_factor`` to ``end_factor`` times the initial rate, linearly over ``total_iters`` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal to 1."
            )
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Scalar]:
        """Return the next learning rates, one per parameter group, computed from the current ones."""
        rates = self._rates()
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in rates]
        if self._is_initial or self.last_epoch > self.total_iters:
            return rates
        slope = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * slope
        return [rate * (1.0 + slope / before) for rate in rates]

    def _get_closed_form_lr(self) -> list[Scalar]:
        rise = (self.end_factor - self.start_factor) * min(self.total_iters, self.last_epoch)
        return [base * (self.start_factor + rise / self.total_iters) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """The rate times ``gamma`` every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Scalar]:
        """Return the next learning rates, one per parameter group, computed from the current ones."""
        rates = self._rates()
        return rates if self._is_initial else [rate * self.gamma for rate in rates]

    def _get_closed_form_lr(self) -> list[Scalar]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """From the initial rate to 0 in ``total_iters`` steps, as ``(1 - step / total_iters) ** power``."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Scalar]:
        """Return the next learning rates, one per parameter group, computed from the current ones."""
        rates = self._rates()
        if self._is_initial or self.last_epoch > self.total_iters:
            return rates
        left, before = (1.0 - step / self.total_iters for step in (self.last_epoch, self.last_epoch - 1))
        return [rate * (left / before) ** self.power for rate in rates]

    def _get_closed_form_lr(self) -> list[Scalar]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` in ``T_max`` steps (Loshchilov and Hutter, 2016)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Scalar]:
        """Return the next learning rates, one per parameter group, computed from the current ones.

        When the schedule is resumed in the middle, they are computed from the initial ones.
        """
        rates, least, t, top = self._rates(), self.eta_min, self.last_epoch, self.T_max
        if self._is_initial:
            return rates
        if self._step_count == 1 and t > 0:
            return self._get_closed_form_lr()
        if (t - 1 - top) % (2 * top) == 0:
            rise = (1 - math.cos(math.pi / top)) / 2
            return [rate + (base - least) * rise for base, rate in zip(self.base_lrs, rates, strict=True)]
        ratio = (1 + math.cos(math.pi * t / top)) / (1 + math.cos(math.pi * (t - 1) / top))
        return [ratio * (rate - least) + least for rate in rates]

    def _get_closed_form_lr(self) -> list[Scalar]:
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]
