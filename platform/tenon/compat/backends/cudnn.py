"""PyTorch's ``torch.backends.cudnn``: no backend uses cuDNN; the settings are stored and have no effect.

Kernels are not selected by timing them, as with PyTorch's ``benchmark = True``. For results that are
reproducible bit by bit call ``tenon.use_deterministic_algorithms(True)``.
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
    """Return False: cuDNN is not used."""
    return False


def version() -> int | None:
    """Return None: cuDNN is not used."""
    return None


def is_acceptable(tensor: object) -> bool:
    """Return False: no tensor is passed to cuDNN."""
    return False


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
) -> tuple[bool, bool, int | None, bool, bool]:
    """Set the flags that are not None; return all previous values in the order of the arguments."""
    settings = {
        "enabled": _enabled,
        "benchmark": _benchmark,
        "benchmark_limit": _benchmark_limit,
        "deterministic": _deterministic,
        "allow_tf32": _allow_tf32,
    }
    before = tuple(globals()[name] for name in settings)
    globals().update({name: value for name, value in settings.items() if value is not None})
    return before


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int | None = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """Set all flags within a block."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*before)
        globals()["benchmark_limit"] = before[2]
