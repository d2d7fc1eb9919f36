"""Memory for gathered parameters and for gradients, reused by the modules of a model one after another.

Fresh memory of this size would be page-faulted in every step, which takes as long as reading it. A buffer
returns to the pool when the last array in it is gone: a tensor that a program keeps is never overwritten.
"""

from __future__ import annotations

import math
import threading
import weakref

import numpy as np

ALIGNMENT = 64


class BufferPool:
    """Buffers of bytes. Used and unused ones together take no more than the used ones took at their peak."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []
        self._used = self._peak = 0
        self._lock = threading.RLock()  # a finalizer may run while this thread is inside ``take``

    @property
    def used_bytes(self) -> int:
        """The size of the buffers in use together."""
        return self._used

    @property
    def free_bytes(self) -> int:
        """The size of the unused buffers together."""
        return sum(buffer.nbytes for buffer in self._free)

    def take(self, size: int) -> np.ndarray:
        """``size`` bytes of undefined content, aligned to a cache line."""
        needed = max(size, 1)
        with self._lock:
            memory = self._fitting(needed)
            self._used += needed if memory is None else memory.nbytes
            self._peak = max(self._peak, self._used)
            self._trim()
        if memory is None:
            memory = _aligned(needed)
        holder = Holder(memory)
        weakref.finalize(holder, self._give_back, memory).atexit = False
        return np.asarray(holder)[:size]

    def clear(self) -> None:
        """Free the unused buffers."""
        with self._lock:
            self._free.clear()

    def _fitting(self, needed: int) -> np.ndarray | None:
        """The smallest unused buffer that is large enough, if that is not twice too large."""
        sizes = [(b.nbytes, i) for i, b in enumerate(self._free) if needed <= b.nbytes <= 2 * needed]
        return self._free.pop(min(sizes)[1]) if sizes else None

    def _give_back(self, memory: np.ndarray) -> None:
        with self._lock:
            self._used -= memory.nbytes
            self._free.append(memory)
            self._trim()

    def _trim(self) -> None:
        """Free unused buffers, the oldest first, above the peak."""
        while self._free and self._used + self.free_bytes > self._peak:
            self._free.pop(0)


class Holder:
    """Exports the memory of an array; NumPy arrays made from it, and their views, keep this object alive."""

    def __init__(self, memory: np.ndarray) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory = memory


def _aligned(size: int) -> np.ndarray:
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def padded_to_line(size: int) -> int:
    """``size`` bytes, rounded up to whole cache lines.

    >>> padded_to_line(65)
    128
    """
    return math.ceil(size / ALIGNMENT) * ALIGNMENT
