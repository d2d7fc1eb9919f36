"""PyTorch's ``torch.backends.nnpack``: a convolution library that is not used here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["flags", "is_available", "set_flags"]

_enabled: bool = True


def is_available() -> bool:
    """Return False: NNPACK is not used."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Store the flag, which has no effect; return the previous one in a tuple."""
    before = globals()["_enabled"]
    globals()["_enabled"] = _enabled
    return (before,)


@contextlib.contextmanager
def flags(enabled: bool = False) -> Iterator[None]:
    """Set the flag within a block; it has no effect."""
    (before,) = set_flags(enabled)
    try:
        yield
    finally:
        set_flags(before)


_nnpack_available = is_available
