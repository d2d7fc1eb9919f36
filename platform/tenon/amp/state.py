"""Autocast's state, one per thread: on or off per device type, the dtype, and the casts kept.

The functions here are torch's. ``autocast`` is the way to use them. Next: ``casting.py``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tenon import dtypes
from tenon.amp.casting import Casting
from tenon.device import TYPES
from tenon.dtypes import dtype
from tenon.engine.interceptor import SLOT
from tenon.engine.precision import PRECISION
from tenon.errors import ArgumentError

_DEFAULTS = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}


class State(threading.local):
    """What ``autocast`` changes and restores."""

    def __init__(self) -> None:
        self.enabled = dict.fromkeys(_DEFAULTS, False)
        self.dtypes = dict(_DEFAULTS)
        self.cache_enabled = True
        self.nesting = 0
        #: In the slot while autocast is on.
        self.casting: Casting | None = None

    def settle(self) -> None:
        """Put the interceptor into the slot or take it out, as the state asks."""
        targets = {name: self.dtypes[name].numpy for name, on in self.enabled.items() if on}
        if not targets:
            if self.casting is not None and self.casting.placed:
                self._remove(self.casting)
            return
        if self.casting is None:
            self.casting = Casting()
        casting = self.casting
        casting.targets, casting.keeps = targets, self.cache_enabled
        if not casting.placed:
            casting.placed = True
            SLOT.push(casting)
        PRECISION.call, PRECISION.casting = casting.call, REGION

    def _remove(self, casting: Casting) -> None:
        casting.placed = False
        SLOT.pop(casting)
        PRECISION.call = PRECISION.casting = None

    def clear(self) -> None:
        """Forget the casts that are kept."""
        if self.casting is not None:
            self.casting.kept.clear()


STATE = State()


class Region:
    """This thread's autocast as ``tenon.compile`` takes it along: off around the program, on inside the
    function."""

    @property
    def key(self) -> Any:
        """What a program recorded in this region depends on."""
        return (*_regions().items(), STATE.cache_enabled)

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Off, with nothing kept; afterwards as before."""
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
            STATE.settle()

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` in a region of its own like this one."""
        from tenon.amp.autocast_mode import autocast  # built on this module

        for device, target in _regions().items():
            function = autocast(device, target, cache_enabled=STATE.cache_enabled)(function)
        return function


REGION = Region()


def _regions() -> dict[str, dtype]:
    """Where autocast is on in this thread, and in which dtype."""
    return {name: STATE.dtypes[name] for name, on in STATE.enabled.items() if on}


def _known(device_type: Any) -> str:
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
    """Whether ``autocast`` knows this device type."""
    return device_type in _DEFAULTS


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on in this thread for ``device_type`` (as in torch, "cuda" if none is given); never
    for torch's further types, "mps" say."""
    return device_type not in TYPES[2:] and STATE.enabled[_known(device_type)]


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Turn autocast on or off in this thread; with one argument, for "cuda"."""
    if enabled is None:
        device_type, enabled = "cuda", bool(device_type)
    STATE.enabled = {**STATE.enabled, _known(device_type): bool(enabled)}
    STATE.settle()


def get_autocast_dtype(device_type: str) -> dtype:
    """The dtype that products run in under autocast; bfloat16 on the CPU if nobody chose another."""
    return STATE.dtypes[_known(device_type)]


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Choose the dtype that products run in under autocast."""
    STATE.dtypes = {**STATE.dtypes, _known(device_type): dtype}
    STATE.settle()


def get_autocast_gpu_dtype() -> dtype:
    """``get_autocast_dtype("cuda")``, as it was called before."""
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> dtype:
    """``get_autocast_dtype("cpu")``, as it was called before."""
    return get_autocast_dtype("cpu")


def is_autocast_cpu_enabled() -> bool:
    """``is_autocast_enabled("cpu")``, as it was called before."""
    return is_autocast_enabled("cpu")


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept until the outermost region ends."""
    return STATE.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Choose whether casts of parameters are kept."""
    STATE.cache_enabled = bool(enabled)
    STATE.settle()


def clear_autocast_cache() -> None:
    """Forget this thread's casts of parameters."""
    STATE.clear()


def autocast_increment_nesting() -> int:
    """Enter one more region; returns how many are open in this thread."""
    STATE.nesting += 1
    return STATE.nesting


def autocast_decrement_nesting() -> int:
    """Leave a region; returns how many are still open in this thread."""
    STATE.nesting -= 1
    return STATE.nesting
