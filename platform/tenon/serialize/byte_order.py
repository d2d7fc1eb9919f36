"""The byte order of old files that do not say which they have: torch's ``set_default_load_endianness``."""

from __future__ import annotations

import sys
from enum import Enum


class LoadEndianness(Enum):
    """Which byte of a number comes first."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Default:
    order: LoadEndianness | None = None


def get_default_load_endianness() -> LoadEndianness | None:
    """What files without a mark are taken for; None means little."""
    return _Default.order


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Say what files without a mark are to be taken for."""
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError(
            f"Invalid argument type in function set_default_load_endianness: {endianness!r} is no "
            "LoadEndianness."
        )
    _Default.order = endianness


def unmarked() -> bytes:
    """The byte order of a file without a mark, as a file would spell it."""
    if _Default.order is LoadEndianness.NATIVE:
        return sys.byteorder.encode()
    return b"big" if _Default.order is LoadEndianness.BIG else b"little"
