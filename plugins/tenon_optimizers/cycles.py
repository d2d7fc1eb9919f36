"""Schedules that rise and fall: one cycle, triangles, and cosines with warm restarts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypedDict

from tenon.extend import LRScheduler, Optimizer
from tenon.optim.scheduler import check_optimizer, per_group, set_group_value
from tenon.optim.types import ParamGroup, PerGroup, Scalar, StateDict
from tenon_optimizers.functions import load_attributes, saved_attributes


class _WithMomentum(LRScheduler):
    """Base class of schedules that also vary the momentum, or Adam's first beta."""

    use_beta1: bool

    def _prepare_momentum(
        self, base: PerGroup, top: PerGroup, last_epoch: int
    ) -> tuple[list[Scalar], list[Scalar]]:
        """Set the highest momentum; return the lowest and the highest of each group."""
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in defaults
        bases = per_group("base_momentum", self.optimizer, base)
        tops = per_group("max_momentum", self.optimizer, top)
        if last_epoch == -1:
            for group, low, high in zip(self.optimizer.param_groups, bases, tops, strict=True):
                self._set_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low
        return bases, tops

    def _set_momentum(self, group: ParamGroup, value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class OneCycleLR(_WithMomentum):
    """Up from ``max_lr / div_factor`` to ``max_lr``, then down far below it (Smith and Topin, 2017)."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: PerGroup,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: PerGroup = 0.85,
        max_momentum: PerGroup = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or pct_start < 0 or pct_start > 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        tops = per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, tops, strict=True):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._prepare_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Scalar]:
        """Return the rates of the phase at the current step; also cycle the momentum."""
        self._warn_outside()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}"
            )
        start, phase = 0.0, self._schedule_phases[0]
        for phase in self._schedule_phases:
            if step <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        share = (step - start) / (phase["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._anneal_func(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                first, last = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._anneal_func(first, last, share))
        return rates

    def _anneal_func(self, start: Scalar, end: Scalar, share: float) -> Scalar:
        """Return the annealing curve by name; a state of PyTorch before 2.2 holds the function itself."""
        name = self.__dict__.get("_anneal_func_type")
        if name is None:
            return self.__dict__["anneal_func"](start, end, share)
        return (
            self._annealing_cos(start, end, share)
            if name == "cos"
            else self._annealing_linear(start, end, share)
        )

    @staticmethod
    def _annealing_cos(start: Scalar, end: Scalar, share: float) -> Scalar:
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    @staticmethod
    def _annealing_linear(start: Scalar, end: Scalar, share: float) -> Scalar:
        return (end - start) * share + start


def _total_steps(total: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
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


class _Phase(TypedDict):
    """A phase of ``OneCycleLR``: its last step, and the names of the group options at its two ends."""

    end_step: float
    start_lr: str
    end_lr: str
    start_momentum: str
    end_momentum: str


def _phases(total: int, share: float, three: bool) -> list[_Phase]:
    """Return the phases of ``total`` steps. The rise takes ``share`` of them; if ``three``, the fall too."""

    def phase(end: float, rates: tuple[str, str], momenta: tuple[str, str]) -> _Phase:
        return {
            "end_step": end,
            "start_lr": rates[0],
            "end_lr": rates[1],
            "start_momentum": momenta[0],
            "end_momentum": momenta[1],
        }

    up = phase(float(share * total) - 1, ("initial_lr", "max_lr"), ("max_momentum", "base_momentum"))
    if not three:
        return [up, phase(total - 1, ("max_lr", "min_lr"), ("base_momentum", "max_momentum"))]
    down = phase(float(2 * share * total) - 2, ("max_lr", "initial_lr"), ("base_momentum", "max_momentum"))
    return [up, down, phase(total - 1, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum"))]


class CyclicLR(_WithMomentum):
    """Between ``base_lr`` and ``max_lr`` along triangles (Smith, 2015).

    ``mode``: triangles of equal height ("triangular"), each half as high as the last ("triangular2"), or
    scaled by ``gamma`` every step ("exp_range"). ``scale_fn`` replaces it: a factor per cycle or per step
    (``scale_mode``).
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: PerGroup,
        max_lr: PerGroup,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: PerGroup = 0.8,
        max_momentum: PerGroup = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for rate, group in zip(base_lrs, optimizer.param_groups, strict=True):
                set_group_value(group, "lr", rate)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in _SCALE and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else _SCALE[mode][0]
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            limits = self._prepare_momentum(base_momentum, max_momentum, last_epoch)
            self.base_momentums, self.max_momentums = limits
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """Return the height of the triangle at cycle or step ``x``, relative to the first one."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return self._scale_fn_ref(x, self.gamma)

    def _init_scale_fn(self) -> None:
        """Select the scale function of ``mode``, unless a custom one was passed."""
        if self._scale_fn_custom is None:
            self._scale_fn_ref = _SCALE[self.mode][1]

    def get_lr(self) -> list[Scalar]:
        """Return the rates at the position in the cycle; also cycle the momentum, inversely."""
        self._warn_outside()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        share = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            ends = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, ends, strict=True):
                self._set_momentum(group, high - (high - low) * share * scale)
        return [
            low + (high - low) * share * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> StateDict:
        """Return the state: functions are not saved, callable objects by their attributes."""
        saved = super().state_dict() | {"_scale_fn_custom": saved_attributes(self._scale_fn_custom)}
        saved.pop("_scale_fn_ref", None)
        return saved

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore the attributes of a callable object, keep a function."""
        saved = dict(state_dict)
        load_attributes(self._scale_fn_custom, saved.pop("_scale_fn_custom"))
        super().load_state_dict(saved)
        self._init_scale_fn()


def _triangular(cycle: float, gamma: float) -> float:
    return 1.0


def _triangular2(cycle: float, gamma: float) -> float:
    return 1 / 2.0 ** (cycle - 1)


def _exp_range(step: float, gamma: float) -> float:
    return gamma**step


#: Mode of ``CyclicLR`` -> its ``scale_mode``, and the height as a function of that and of ``gamma``.
_SCALE = {
    "triangular": ("cycle", _triangular),
    "triangular2": ("cycle", _triangular2),
    "exp_range": ("iterations", _exp_range),
}


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines of ``T_0``, ``T_0 * T_mult``, ... steps, each from the initial rate to ``eta_min``."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Scalar]:
        """Return the rates at the position in the current cosine."""
        self._warn_outside()
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Advance by one step, or to ``epoch``, possibly fractional: ``step(epoch + batch / batches)``."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self._jump(epoch)
        self.last_epoch = math.floor(epoch)
        with self._calling_get_lr():
            values = self.get_lr()
        self._set_rates(values)

    def _jump(self, epoch: float) -> None:
        """Set the current cosine, and the position in it, from ``epoch``."""
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n
