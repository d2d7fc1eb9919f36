"""``LRScheduler``: base of all learning-rate schedules, with torch's protocol.

A schedule sets ``group["lr"]`` of every parameter group once at construction and once per ``step()``. Call
``optimizer.step()`` first. Tensor-valued rates are written in place, so captured steps see them.
"""

from __future__ import annotations

import warnings
from typing import Any

from tenon.core.grad_mode import no_grad
from tenon.core.tensor import Tensor
from tenon.optim.optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed form is used "
    "instead of the new chainable form, where available."
)


def group_values(optimizer: Any, key: str) -> list[Any]:
    """``key`` of every group; tensors are copied."""
    return [g[key].clone() if isinstance(g[key], Tensor) else g[key] for g in optimizer.param_groups]


def set_group_value(group: dict[str, Any], key: str, value: Any) -> None:
    """Set ``key``; a tensor keeps its identity."""
    if isinstance(group[key], Tensor):
        with no_grad():
            group[key].fill_(value.item() if isinstance(value, Tensor) else value)
    else:
        group[key] = value


class LRScheduler:
    """Derive, and state ``get_lr()``: the rates of all groups at ``self.last_epoch``, usually from the current ones."""

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                rate = group["lr"]
                group.setdefault("initial_lr", rate.clone() if isinstance(rate, Tensor) else rate)
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with last_epoch >= 0. Load the "
                    "optimizer's state first, or start with last_epoch=-1."
                )
        self.base_lrs = group_values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the first rates."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[Any]:
        """The next rates; called within ``step``. Use ``get_last_lr`` to read the current ones."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_lr().")

    def get_last_lr(self) -> list[Any]:
        """The rates that the last ``step`` set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go one step on and set the rates."""
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should call them in "
                "the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure to do this will result in PyTorch "
                "skipping the first value of the learning rate schedule.",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                values = self.get_lr() if closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_group_value(group, "lr", value)
        self._last_lr = group_values(self.optimizer, "lr")

    def _rates(self) -> list[Any]:
        """The current rates; warns when ``get_lr`` is called from outside a step."""
        self._warn_outside()
        return group_values(self.optimizer, "lr")

    def _warn_outside(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=4,
            )

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what ``state_dict`` returned."""
        self.__dict__.update(state_dict)
