"""Memory that has addresses but, until somebody writes to it, no pages.

Planning works on arrays in it, so that NumPy itself says what a view's strides are.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from tenon.engine.aval import Aval
from tenon.graph.arena import aligned


def address(array: Any) -> int:
    """Where the array's first element lies."""
    return int(array.__array_interface__["data"][0])


class VirtualMemory:
    """``nbytes`` of addresses, given out from the lowest up."""

    def __init__(self, nbytes: int) -> None:
        flags = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
        flags |= getattr(mmap, "MAP_NORESERVE", 0)
        size = max(nbytes, mmap.PAGESIZE)
        held = mmap.mmap(-1, size, flags=flags) if flags else mmap.mmap(-1, size)
        self._bytes = np.frombuffer(held, np.uint8)
        self._used = 0

    def take(self, aval: Aval, order: tuple[int, ...] | None = None) -> Any:
        """An array of ``aval``; ``order`` lists its axes from the slowest to the fastest, None means C."""
        start = self._used
        self._used += aligned(aval.nbytes)
        piece = self._bytes[start : start + aval.nbytes].view(aval.dtype)
        if order is None:
            return piece.reshape(aval.shape)
        lying = piece.reshape([aval.shape[a] for a in order])
        return lying.transpose(np.argsort(order))
