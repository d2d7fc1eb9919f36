"""torch's ``torch.backends.nnpack``: a library of convolutions that is not called here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["flags", "is_available", "set_flags"]

_enabled: bool = True


def is_available() -> bool:
    """False: NNPACK is not called."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Note what scripts ask for, without effect; what was noted before."""
    before = globals()["_enabled"]
    globals()["_enabled"] = _enabled
    return (before,)


@contextlib.contextmanager
def flags(enabled: bool = False) -> Iterator[None]:
    """Note what scripts ask for inside the block; without effect."""
    (before,) = set_flags(enabled)
    try:
        yield
    finally:
        set_flags(before)


_nnpack_available = is_available
