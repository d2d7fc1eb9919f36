"""Autocast's state, one per thread: on or off per device type, the dtype, and the cached casts.

The functions have PyTorch's names; use ``autocast`` instead of calling them. Next: ``casting.py``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from tenon import dtypes
from tenon.amp.casting import Casting
from tenon.device import TYPES
from tenon.dtypes import dtype
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.errors import ArgumentError
from tenon.tensors.precision import PRECISION

Function = TypeVar("Function", bound=Callable[..., object])

_DEFAULTS = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}


class State(threading.local):
    """State of a thread that ``autocast`` changes and restores."""

    def __init__(self) -> None:
        self.enabled = dict.fromkeys(_DEFAULTS, False)
        self.dtypes = dict(_DEFAULTS)
        self.cache_enabled = True
        self.nesting = 0
        #: The interceptor, in the slot while autocast is on.
        self.casting: Casting | None = None

    def update_slot(self) -> None:
        """Put the interceptor into the slot if autocast is on for some device, else remove it."""
        targets = {name: self.dtypes[name].numpy for name, on in self.enabled.items() if on}
        if not targets:
            if self.casting is not None and self.casting.placed:
                self._remove(self.casting)
            return
        if self.casting is None:
            self.casting = Casting()
        casting = self.casting
        casting.targets, casting.caches = targets, self.cache_enabled
        if not casting.placed:
            casting.placed = True
            SLOT.push(casting)
        MODE.casts, PRECISION.casting = casting.call, REGION

    def _remove(self, casting: Casting) -> None:
        casting.placed = False
        SLOT.pop(casting)
        MODE.casts = PRECISION.casting = None

    def clear(self) -> None:
        """Discard the cached casts."""
        if self.casting is not None:
            self.casting.cache.clear()


STATE = State()


class Region:
    """This thread's autocast for ``tenon.compile``: off around a program, on inside the recorded function."""

    @property
    def key(self) -> tuple[object, ...]:
        """The state that a program recorded in this region depends on."""
        return (*_regions().items(), STATE.cache_enabled)

    @contextlib.contextmanager
    def disabled(self) -> Iterator[None]:
        """Context manager: autocast is off, with an empty cache; the state is restored afterwards."""
        names = ("enabled", "dtypes", "cache_enabled", "nesting", "casting")
        before = {name: getattr(STATE, name) for name in names}
        casting = STATE.casting
        assert casting is not None
        STATE._remove(casting)
        STATE.enabled, STATE.dtypes = dict.fromkeys(_DEFAULTS, False), dict(STATE.dtypes)
        STATE.nesting, STATE.casting = 0, None
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(STATE, name, value)
            STATE.update_slot()

    def around(self, function: Function) -> Function:
        """Return ``function`` in a new region with the settings of this one."""
        from tenon.amp.autocast_mode import autocast  # built on this module

        for device, target in _regions().items():
            function = autocast(device, target, cache_enabled=STATE.cache_enabled)(function)
        return function


REGION = Region()


def _regions() -> dict[str, dtype]:
    """Return the device types for which autocast is on in this thread, each with its dtype."""
    return {name: STATE.dtypes[name] for name, on in STATE.enabled.items() if on}


def _checked_device_type(device_type: object) -> str:
    """Return ``device_type``; raise ArgumentError unless autocast supports it."""
    if not isinstance(device_type, str):
        raise ArgumentError(
            f"Expected `device_type` of type `str`, got: `{type(device_type)}`. Pass 'cpu' or 'cuda'."
        )
    if device_type not in _DEFAULTS:
        raise ArgumentError(
            f"User specified an unsupported autocast device_type '{device_type}'; tenon has"
            f" {', '.join(map(repr, _DEFAULTS))}."
        )
    return device_type


def is_autocast_available(device_type: str) -> bool:
    """Return whether ``autocast`` supports this device type."""
    return device_type in _DEFAULTS


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Return whether autocast is on in this thread for ``device_type``; False for types that only PyTorch
    has."""
    return device_type not in TYPES[2:] and STATE.enabled[_checked_device_type(device_type)]


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Turn autocast on or off in this thread; with one argument, for "cuda"."""
    if enabled is None:
        device_type, enabled = "cuda", bool(device_type)
    STATE.enabled = {**STATE.enabled, _checked_device_type(device_type): bool(enabled)}
    STATE.update_slot()


def get_autocast_dtype(device_type: str) -> dtype:
    """Return the dtype of matrix products under autocast; by default bfloat16 on the CPU, float16 on GPUs."""
    return STATE.dtypes[_checked_device_type(device_type)]


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Set the dtype of matrix products under autocast."""
    STATE.dtypes = {**STATE.dtypes, _checked_device_type(device_type): dtype}
    STATE.update_slot()


def get_autocast_gpu_dtype() -> dtype:
    """Former name of ``get_autocast_dtype("cuda")``."""
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> dtype:
    """Former name of ``get_autocast_dtype("cpu")``."""
    return get_autocast_dtype("cpu")


def is_autocast_cpu_enabled() -> bool:
    """Former name of ``is_autocast_enabled("cpu")``."""
    return is_autocast_enabled("cpu")


def is_autocast_cache_enabled() -> bool:
    """Return whether casts of parameters are cached until the outermost region ends."""
    return STATE.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set whether casts of parameters are cached."""
    STATE.cache_enabled = bool(enabled)
    STATE.update_slot()


def clear_autocast_cache() -> None:
    """Discard this thread's cached casts of parameters."""
    STATE.clear()


def autocast_increment_nesting() -> int:
    """Enter one more region; return the number of regions that this thread is in."""
    STATE.nesting += 1
    return STATE.nesting


def autocast_decrement_nesting() -> int:
    """Leave a region; return the number of regions that this thread is still in."""
    STATE.nesting -= 1
    return STATE.nesting
