"""Reserved memory: it has addresses, but pages of memory only where it is written.

Planning uses arrays in it, so that NumPy itself computes the strides of views.
"""

from __future__ import annotations

import mmap

import numpy as np

from tenon.engine.aval import Aval
from tenon.graph.arena import aligned


def address(array: np.ndarray) -> int:
    """Return the address of the array's first element."""
    return int(array.__array_interface__["data"][0])


class VirtualMemory:
    """``nbytes`` of addresses, allocated in increasing order."""

    def __init__(self, nbytes: int) -> None:
        flags = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
        flags |= getattr(mmap, "MAP_NORESERVE", 0)
        size = max(nbytes, mmap.PAGESIZE)
        mapping = mmap.mmap(-1, size, flags=flags) if flags else mmap.mmap(-1, size)
        self._bytes = np.frombuffer(mapping, np.uint8)
        self._used = 0

    def take(self, aval: Aval, order: tuple[int, ...] | None = None) -> np.ndarray:
        """Return an array of ``aval``; ``order`` lists its axes from the slowest to the fastest (default:
        C)."""
        start = self._used
        self._used += aligned(aval.nbytes)
        piece = self._bytes[start : start + aval.nbytes].view(aval.dtype)
        if order is None:
            return piece.reshape(aval.shape)
        ordered = piece.reshape([aval.shape[a] for a in order])
        return ordered.transpose(np.argsort(order))
