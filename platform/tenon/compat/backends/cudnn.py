"""torch's ``torch.backends.cudnn``: no backend calls cuDNN, so the settings are kept and have no effect.

Kernels are not chosen by timing them, as ``benchmark = True`` asks in torch. To ask for results that repeat
bit by bit say ``tenon.use_deterministic_algorithms(True)``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["flags", "is_acceptable", "is_available", "set_flags", "version"]

enabled: bool = True
benchmark: bool = False
benchmark_limit: int | None = None
deterministic: bool = False
allow_tf32: bool = True


def is_available() -> bool:
    """False: cuDNN is not called."""
    return False


def version() -> int | None:
    """None: there is no cuDNN."""
    return None


def is_acceptable(tensor: object) -> bool:
    """False: no tensor is given to cuDNN."""
    return False


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
) -> tuple[bool, bool, int | None, bool, bool]:
    """Set what is not None; returns what was set before, in the order of the arguments."""
    given = {
        "enabled": _enabled,
        "benchmark": _benchmark,
        "benchmark_limit": _benchmark_limit,
        "deterministic": _deterministic,
        "allow_tf32": _allow_tf32,
    }
    before = tuple(globals()[name] for name in given)
    globals().update({name: value for name, value in given.items() if value is not None})
    return before


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int | None = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """Set all of them inside the block."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*before)
        globals()["benchmark_limit"] = before[2]
