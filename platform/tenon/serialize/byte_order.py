"""The byte order of files without a byte order mark: torch's ``set_default_load_endianness``."""

from __future__ import annotations

from enum import Enum


class LoadEndianness(Enum):
    """The byte order of numbers."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3
