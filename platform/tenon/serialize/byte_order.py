"""The byte order of old files that do not say which they have: torch's ``set_default_load_endianness``."""

from __future__ import annotations

from enum import Enum


class LoadEndianness(Enum):
    """Which byte of a number comes first."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3
