"""``autocast``: a region of the program in mixed precision; ``custom_fwd`` and ``custom_bwd`` for
Functions."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from tenon import cuda, dtypes
from tenon.amp import state
from tenon.amp.state import STATE, is_autocast_available
from tenon.dtypes import dtype
from tenon.dtypes import dtype as DType  # where a parameter is called dtype
from tenon.errors import ArgumentError, TenonWarning
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.engine.types import Forwarded, Nested

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

Function = TypeVar("Function", bound=Callable[..., object])


def autocast_decorator(autocast_instance: autocast, func: Function) -> Function:
    """Return ``func`` with the region around each call."""

    @functools.wraps(func)
    def inside(*args: Forwarded, **kwargs: Forwarded) -> Forwarded:
        region = copy.copy(autocast_instance)  # calls may come from several threads at once
        region._before = []
        with region:
            return func(*args, **kwargs)

    return cast(Function, inside)


class autocast:
    """A region in which matrix products run in ``dtype`` and losses in float32; also a decorator
    (torch.autocast).

    Parameters keep their dtype and get gradients in it: only the arguments of listed ops are cast, see
    ``tenon.amp.policy``. ``enabled=False`` turns casts off inside. A parameter is cast once per outermost
    region unless ``cache_enabled`` is False. Regions may be nested, also those of one object.

    >>> import tenon
    >>> a = tenon.ones(2, 2)
    >>> with tenon.autocast("cpu"):
    ...     print((a @ a).dtype, (a + a).dtype)
    torch.bfloat16 torch.float32
    """

    def __init__(
        self,
        device_type: str,
        dtype: dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device = state._checked_device_type(device_type)
        self.fast_dtype = state.get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = state.is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        self._enabled = bool(enabled) and self._is_supported()
        #: Enabled, dtypes and cache_enabled before each entry.
        self._before: list[tuple[dict[str, bool], dict[str, DType], bool]] = []

    def _is_supported(self) -> bool:
        """Return whether dtype and device support autocast; warn if not."""
        if self.fast_dtype not in (dtypes.bfloat16, dtypes.float16):
            _warn(
                f"In {self.device.upper()} autocast, but the target dtype {self.fast_dtype} is not supported."
                " Disabling autocast. Supported are torch.bfloat16 and torch.float16."
            )
            return False
        if self.device == "cuda" and not cuda.is_available():
            _warn("CUDA is not available. Disabling autocast.")
            return False
        return True

    def __enter__(self) -> autocast:
        before = (STATE.enabled, STATE.dtypes, STATE.cache_enabled)
        self._before.append(before)
        STATE.enabled = {**before[0], self.device: self._enabled}
        STATE.dtypes = {**before[1], self.device: self.fast_dtype}
        STATE.cache_enabled = self._cache_enabled
        STATE.nesting += 1
        STATE.update_slot()
        return self

    def __exit__(self, *exc: object) -> None:
        STATE.nesting -= 1
        if STATE.nesting == 0:
            STATE.clear()
        STATE.enabled, STATE.dtypes, STATE.cache_enabled = self._before.pop()
        STATE.update_slot()

    def __call__(self, func: Function) -> Function:
        """Return ``func`` with this region around each call."""
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. To open a region,"
                " write `with autocast(...):`."
            )
        return autocast_decorator(self, func)


def _warn(message: str) -> None:
    warnings.warn(message, TenonWarning, stacklevel=4)


def _cast(value: Nested, device_type: str, to: dtype) -> Nested:
    """Return ``value`` with the floating-point tensors in it cast to ``to``, except float64."""
    if isinstance(value, Tensor):
        eligible = (
            value.is_floating_point() and value.device.type == device_type and value.dtype != dtypes.float64
        )
        return value.to(to) if eligible else value
    if isinstance(value, (str, bytes, np.ndarray)):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, to): _cast(v, device_type, to) for k, v in value.items()}
    if isinstance(value, Iterable):
        converted = (_cast(v, device_type, to) for v in value)
        return type(value)(converted) if isinstance(value, (list, tuple)) else converted
    return value


def custom_fwd(
    fwd: Callable[..., Forwarded] | None = None, *, device_type: str, cast_inputs: dtype | None = None
) -> Callable[..., Forwarded]:
    """Decorator of a custom Function's ``forward``: stores autocast's state for ``custom_bwd``.

    With ``cast_inputs``, inside a region, tensors are cast to it and ``forward`` runs without autocast.
    """
    state._checked_device_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Forwarded, **kwargs: Forwarded) -> Forwarded:
        context, active = args[0], state.is_autocast_enabled(device_type)
        context._dtype = state.get_autocast_dtype(device_type)
        context._fwd_used_autocast = active and cast_inputs is None
        if cast_inputs is None or not active:
            return fwd(*args, **kwargs)
        inputs = [_cast(a, device_type, cast_inputs) for a in args[1:]]
        named = {k: _cast(v, device_type, cast_inputs) for k, v in kwargs.items()}
        with autocast(device_type, enabled=False):
            return fwd(context, *inputs, **named)

    return forward


def custom_bwd(bwd: Callable[..., Forwarded] | None = None, *, device_type: str) -> Callable[..., Forwarded]:
    """Decorator of a custom Function's ``backward``: runs it with the autocast state of its ``forward``."""
    state._checked_device_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args: Forwarded, **kwargs: Forwarded) -> Forwarded:
        context = args[0]
        if not hasattr(context, "_fwd_used_autocast"):
            raise ArgumentError(
                "custom_bwd: this Function's forward is not decorated with custom_fwd. Decorate both."
            )
        with autocast(device_type, enabled=context._fwd_used_autocast, dtype=context._dtype):
            return bwd(*args, **kwargs)

    return backward
