"""``LRScheduler``: base class of learning-rate schedules, with PyTorch's protocol.

A schedule sets ``group["lr"]`` of every parameter group at construction and at every ``step()``. Call
``optimizer.step()`` first. A rate that is a tensor is updated in place, so references to it stay valid.

A subclass defines ``get_lr()``, which reads the current rates by ``self._rates()``. With
``_get_closed_form_lr()`` it also supports ``step(epoch)``.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tenon.engine.watchers import WATCHERS
from tenon.optim.optimizer import Optimizer
from tenon.optim.types import ParamGroup, PerGroup, Scalar, StateDict
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. "
    "Please use `scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from "
    "None, the closed form is used instead of the new chainable form, where available."
)
_ORDER = "See https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
_TOO_EARLY = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you "
    "should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure to "
    f"do this will result in PyTorch skipping the first value of the learning rate schedule. {_ORDER}"
)
_REPLACED = (
    "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. Please, "
    f"make sure to call `optimizer.step()` before `lr_scheduler.step()`. {_ORDER}"
)


def group_values(optimizer: Optimizer, key: str) -> list[Scalar]:
    """Return ``group[key]`` of every group; tensors are copied."""
    return [_copied(group[key]) for group in optimizer.param_groups]


def set_group_value(group: ParamGroup, key: str, value: Scalar) -> None:
    """Set ``group[key]``; a tensor is updated in place."""
    if isinstance(group[key], Tensor):
        with no_grad():
            group[key].fill_(value.item() if isinstance(value, Tensor) else value)
    else:
        group[key] = value


def per_group(name: str, optimizer: Optimizer, value: PerGroup) -> list[Scalar]:
    """Broadcast ``value`` to a list with one entry per group; a list must have that length."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [_copied(value) for _ in range(groups)]
    if len(value) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
            f"param_groups has {groups}."
        )
    return [_copied(v) for v in value]


def _copied(value: Scalar) -> Scalar:
    return value.clone() if isinstance(value, Tensor) else value


def _recorded(step: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``step`` to notify an active recorder: a compiled function repeats the step at every run.

    Nested steps, of a schedule that steps others, notify only once.
    """

    @functools.wraps(step)
    def stepped(self: LRScheduler, *args: object, **kwargs: object) -> None:
        recorder = WATCHERS.recorder
        if recorder is None:
            return step(self, *args, **kwargs)
        with recorder.again(self.optimizer, lambda: step(self, *args, **kwargs)):
            return step(self, *args, **kwargs)

    return stepped


class LRScheduler:
    """Base class: a subclass defines ``get_lr()``, the rates of all groups at ``self.last_epoch``.

    >>> import tenon
    >>> class Halving(LRScheduler):
    ...     def get_lr(self):
    ...         return [rate if self._is_initial else rate / 2 for rate in self._rates()]
    >>> optimizer = tenon.optim.SGD([tenon.nn.Parameter(tenon.ones(1))], lr=1.0)
    >>> schedule = Halving(optimizer)
    >>> optimizer.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    #: Whether ``step`` is calling ``get_lr``; other callers get a warning.
    _get_lr_called_within_step = False
    #: Whether the constructor is calling ``step``.
    _is_initial = False

    base_lrs: list[Scalar]
    _last_lr: list[Scalar]
    _step_count: int

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    "last_epoch >= 0. Load the optimizer's state first, or start with last_epoch=-1."
                )
        self.base_lrs = group_values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _watch_steps(optimizer)
        self._initial_step()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "step" in cls.__dict__:
            cls.step = _recorded(cls.__dict__["step"])  # type: ignore[method-assign]

    def _initial_step(self) -> None:
        """Set the first rates."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[Scalar]:
        """Return the next rates; called by ``step``. Use ``get_last_lr`` to read the current ones."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_lr().")

    def get_last_lr(self) -> list[Scalar]:
        """Return the rates that the last ``step`` set."""
        return self._last_lr

    @_recorded
    def step(self, epoch: int | None = None) -> None:
        """Advance by one step, or to ``epoch``, and set the rates."""
        if self._step_count == 1:
            known = self.optimizer.__dict__.get("_scheduled_step")  # None in a copied or unpickled optimizer
            if known is not None and _step_function(self.optimizer) is not known:
                warnings.warn(_REPLACED, UserWarning, stacklevel=3)
            elif not getattr(self.optimizer, "_opt_called", False):
                warnings.warn(_TOO_EARLY, UserWarning, stacklevel=3)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=3)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        with self._calling_get_lr():
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                values = self.get_lr() if closed is None else closed()
        self._set_rates(values)

    @contextmanager
    def _calling_get_lr(self) -> Iterator[None]:
        """Mark the context in which ``get_lr`` may be called without a warning."""
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    def _set_rates(self, values: list[Scalar]) -> None:
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_group_value(group, "lr", value)
        self._last_lr = group_values(self.optimizer, "lr")

    def _rates(self) -> list[Scalar]:
        """Return the current rates; warn if ``get_lr`` is called outside ``step``."""
        self._warn_outside()
        return group_values(self.optimizer, "lr")

    def _warn_outside(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=4,
            )

    def state_dict(self) -> StateDict:
        """Return all attributes except the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self.__dict__.update(state_dict)


def check_optimizer(optimizer: Optimizer) -> None:
    """Raise TypeError, with PyTorch's message, unless ``optimizer`` is an Optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _watch_steps(optimizer: Optimizer) -> None:
    """Start to track calls of ``optimizer.step``, for the warnings about the order of steps."""
    own = optimizer.__dict__
    if "_scheduled_step" not in own:
        own["_scheduled_step"] = _step_function(optimizer)
        own["_opt_called"] = False


def _step_function(optimizer: Optimizer) -> Callable[..., object]:
    return getattr(optimizer.step, "__func__", optimizer.step)
