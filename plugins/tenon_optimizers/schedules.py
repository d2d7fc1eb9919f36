"""Learning-rate schedules by a formula in the step count (torch.optim.lr_scheduler).

All are chainable: each computes the next rate from the current one, so several can act on one optimizer.
"""

from __future__ import annotations

import math
import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tenon.extend import LRScheduler, Optimizer


class LambdaLR(LRScheduler):
    """The initial rate times ``lr_lambda(step)``; one function, or one per group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        self.lr_lambdas = _per_group(optimizer, lr_lambda, "lr_lambdas")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """From the initial rates."""
        self._warn_outside()
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Functions are not saved; callable objects are saved as their attributes."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [
            None if isinstance(f, types.FunctionType) else dict(f.__dict__) for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the attributes of callable objects, keeps functions."""
        saved = dict(state_dict)
        for f, attributes in zip(self.lr_lambdas, saved.pop("lr_lambdas"), strict=True):
            if attributes is not None:
                f.__dict__.update(attributes)
        self.__dict__.update(saved)


def _per_group(optimizer: Optimizer, value: Any, name: str) -> list[Any]:
    if isinstance(value, (list, tuple)):
        if len(value) != len(optimizer.param_groups):
            raise ValueError(f"Expected {len(optimizer.param_groups)} {name}, but got {len(value)}")
        return list(value)
    return [value] * len(optimizer.param_groups)


class MultiplicativeLR(LambdaLR):
    """The current rate times ``lr_lambda(step)``."""

    def get_lr(self) -> list[Any]:
        """From the current rates."""
        rates = self._rates()
        if self._is_initial or self.last_epoch <= 0:
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

    def get_lr(self) -> list[Any]:
        """From the current rates."""
        rates = self._rates()
        if self._is_initial or self.last_epoch == 0 or self.last_epoch % self.step_size:
            return rates
        return [rate * self.gamma for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The rate times ``gamma`` at each of ``milestones``."""

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """From the current rates."""
        rates = self._rates()
        if self._is_initial or self.last_epoch not in self.milestones:
            return rates
        return [rate * self.gamma ** self.milestones[self.last_epoch] for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
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

    def get_lr(self) -> list[Any]:
        """From the current rates."""
        rates = self._rates()
        if self.last_epoch == 0:
            return [rate * self.factor for rate in rates]
        if self._is_initial or self.last_epoch != self.total_iters:
            return rates
        return [rate * (1.0 / self.factor) for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        within = self.last_epoch < self.total_iters
        return [base * (self.factor if within else 1.0) for base in self.base_lrs]


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

    def get_lr(self) -> list[Any]:
        """From the current rates."""
        rates = self._rates()
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in rates]
        if self._is_initial or self.last_epoch > self.total_iters:
            return rates
        slope = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * slope
        return [rate * (1.0 + slope / before) for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        return [
            base * (self.start_factor + (self.end_factor - self.start_factor) * share)
            for base in self.base_lrs
        ]


class ExponentialLR(LRScheduler):
    """The rate times ``gamma`` every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """From the current rates."""
        rates = self._rates()
        if self._is_initial or self.last_epoch == 0:
            return rates
        return [rate * self.gamma for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` over ``T_max`` steps (Loshchilov and Hutter, 2016)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """From the current rates; from the initial ones when resumed in the middle."""
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

    def _get_closed_form_lr(self) -> list[Any]:
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class OneCycleLR(LRScheduler):
    """Up from ``max_lr / div_factor`` to ``max_lr``, then down far below it (Smith and Topin, 2017)."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in _ANNEAL:
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        if last_epoch == -1:
            for group, top in zip(
                optimizer.param_groups, _per_group(optimizer, max_lr, "max_lr"), strict=True
            ):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._prepare_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _prepare_momentum(self, base: Any, top: Any, last_epoch: int) -> None:
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in defaults
        tops, bases = (
            _per_group(self.optimizer, top, "max_momentum"),
            _per_group(self.optimizer, base, "base_momentum"),
        )
        if last_epoch == -1:
            for group, high, low in zip(self.optimizer.param_groups, tops, bases, strict=True):
                self._set_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low

    def _set_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    def get_lr(self) -> list[Any]:
        """By the phase that the step count is in; also cycles the momentum."""
        self._warn_outside()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}"
            )
        anneal = _ANNEAL[self._anneal_func_type]
        start, phase = 0.0, self._schedule_phases[0]
        for phase in self._schedule_phases:
            if step <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        share = (step - start) / (phase["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(anneal(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                self._set_momentum(
                    group, anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
                )
        return rates


_ANNEAL: dict[str, Callable[[float, float, float], float]] = {
    "cos": lambda start, end, share: end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1),
    "linear": lambda start, end, share: (end - start) * share + start,
}


def _total_steps(total: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total is not None:
        if not isinstance(total, int) or total <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total}")
        return total
    if epochs is None or steps_per_epoch is None:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    for name, value in (("epochs", epochs), ("steps_per_epoch", steps_per_epoch)):
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return int(epochs * steps_per_epoch)


def _phases(total: int, share: float, three: bool) -> list[dict[str, Any]]:
    def phase(end: float, rates: tuple[str, str], momenta: tuple[str, str]) -> dict[str, Any]:
        return {
            "end_step": end, "start_lr": rates[0], "end_lr": rates[1], "start_momentum": momenta[0], "end_momentum": momenta[1],
        }  # fmt: skip

    up = phase(float(share * total) - 1, ("initial_lr", "max_lr"), ("max_momentum", "base_momentum"))
    if not three:
        return [up, phase(total - 1, ("max_lr", "min_lr"), ("base_momentum", "max_momentum"))]
    down = phase(float(2 * share * total) - 2, ("max_lr", "initial_lr"), ("base_momentum", "max_momentum"))
    return [up, down, phase(total - 1, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum"))]
