"""Shared-memory windows: one row of bytes for each rank of a node, from ``MPI_Win_allocate_shared``.

Windows are never freed while the program runs: freeing is collective, and arrays may still view the memory.
``Windows`` is a pool: it reuses a window of fitting size once all ranks have dropped their arrays in it.
Beside windows of a row for each rank it has common ones, of one row for all of them.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Sequence

import numpy as np

from tenon_mpi.barrier import SharedBarrier
from tenon_mpi.library import Mpi, MpiComm

PAGE = 4096
CACHED_POSITIONS = 256
"""Size of the cache of positions of arrays."""


SPARE = 4 << 20
"""Bytes of shared memory that are left to others."""
MOST_COMMON = 62
"""Number of common windows: the bits of a word that ranks compare."""
SHARED_FILES = "/dev/shm"
"""Where MPICH has its shared memory. In containers it is often small, and writing beyond it kills the
process."""


class Window:
    """One row of ``size`` zero bytes for each rank of ``node``, or ``common``: one for all of them."""

    def __init__(self, mpi: Mpi, node: MpiComm, size: int, common: bool = False) -> None:
        self.size = -(-max(size, 1) // PAGE) * PAGE
        own = 0 if common and node.Get_rank() else self.size
        self._handle = mpi.Win.Allocate_shared(own, 1, comm=node)
        owners = [0] if common else range(node.Get_size())
        self.rows: list[np.ndarray] = [
            np.frombuffer(self._handle.Shared_query(rank)[0], np.uint8) for rank in owners
        ]
        self.rank = 0 if common else node.Get_rank()
        self.start = int(self.rows[self.rank].ctypes.data)
        self.dropped = False
        if own:
            self.rows[self.rank][...] = 0  # takes its pages now, so that the room that is left is known

    def take(self, count: int, dtype: np.dtype) -> np.ndarray:
        """This rank's row as an array of zeros; ``dropped`` is set once the array and its views are gone."""
        array = self.take_bytes(count * dtype.itemsize)
        array[...] = 0
        return array.view(dtype)

    def take_bytes(self, size: int) -> np.ndarray:
        """``take``, of undefined content."""
        self.dropped = False
        base = np.frombuffer(self.rows[self.rank].data, np.uint8)[:size]
        # A view's base is the array that owns no memory of its own: `holder`, which all views keep alive.
        holder = _Holder(base)
        weakref.finalize(holder, self._drop).atexit = False
        return np.asarray(holder)

    def fence(self) -> None:
        """Memory fence (``MPI_Win_sync``): order this rank's reads and writes as the other ranks see them."""
        self._handle.Sync()

    def _drop(self) -> None:
        self.dropped = True


class _Holder:
    """Exports the memory of an array through NumPy's array interface; views of it keep this object alive."""

    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__ = array.__array_interface__
        self._array = array


class Windows:
    """A pool of windows, in the same order on every rank of the node."""

    def __init__(self, mpi: Mpi, node: MpiComm) -> None:
        self._mpi = mpi
        self._node = node
        self._windows: list[Window] = []
        self._common: list[Window] = []
        self._positions: dict[int, tuple[weakref.ref[np.ndarray], int]] = {}

    def allocate(self, count: int, dtype: np.dtype) -> np.ndarray | None:
        """Allocate a zeroed 1-D array in shared memory; collective over the ranks of the node.

        None on all of them if there is no room for a row of each.
        """
        needed = count * dtype.itemsize
        fits = has_room(needed * self._node.Get_size())
        free = np.array([*(window.dropped for window in self._windows), fits], np.uint8)
        self._node.Allreduce(self._mpi.IN_PLACE, free, self._mpi.MIN)
        fitting = [
            w for w, f in zip(self._windows, free[:-1], strict=True) if f and needed <= w.size <= 2 * needed
        ]
        if fitting:
            window = min(fitting, key=lambda one: one.size)
        elif not free[-1]:
            return None
        else:
            window = Window(self._mpi, self._node, needed)
            self._windows.append(window)
        array = window.take(count, dtype)
        self._node.Barrier()  # No rank may write into rows that others are still clearing.
        return array

    def common(self, size: int, barrier: SharedBarrier) -> np.ndarray | None:
        """``size`` bytes of undefined content in one place of memory for all ranks; collective.

        None if there is no room for them. The memory is reused when no rank has an array in it any more.
        """
        free = sum(1 << number for number, each in enumerate(self._common) if each.dropped)
        free = _on_all(barrier, free)
        fitting = [
            each
            for number, each in enumerate(self._common)
            if free >> number & 1 and size <= each.size <= 2 * max(size, PAGE)
        ]
        if fitting:
            return min(fitting, key=lambda one: one.size).take_bytes(size)
        if not _on_all(barrier, len(self._common) < MOST_COMMON and has_room(size)):
            return None
        self._common.append(Window(self._mpi, self._node, size, common=True))
        return self._common[-1].take_bytes(size)

    def position_of_several(self, arrays: Sequence[np.ndarray], *, common: bool) -> int:
        """The position of the first of ``arrays``, if one window has all of them, a ``common`` one or one of
        rows; else -1."""
        windows = self._common if common else self._windows
        if not windows or not arrays:
            return -1
        starts = [each.__array_interface__["data"][0] for each in arrays]
        for number, window in enumerate(windows):
            offset: int = starts[0] - window.start
            if 0 <= offset < window.size:
                inside = all(0 <= start - window.start < window.size for start in starts)
                return number << 48 | offset if inside else -1
        return -1

    def parts_like(self, position: int, array: np.ndarray) -> list[np.ndarray]:
        """Every rank's array where this rank has ``array``, which is in the window of ``position``."""
        window = self._windows[position >> 48]
        offset = array.__array_interface__["data"][0] - window.start
        flat = [row[offset : offset + array.nbytes].view(array.dtype) for row in window.rows]
        return [each.reshape(array.shape) for each in flat]

    def position_of(self, array: np.ndarray) -> int:
        """The window and offset of contiguous ``array`` as one number, comparable between ranks.

        -1 if it is in no window.
        """
        if array.base is None:
            return -1
        known = self._positions.get(id(array))
        if known is not None and known[0]() is array:
            return known[1]  # Reading an array's address takes 1 us.
        start: int = array.__array_interface__["data"][0] if self._windows else 0
        for number, window in enumerate(self._windows):
            offset = start - window.start
            if 0 <= offset < window.size:
                if len(self._positions) >= CACHED_POSITIONS:
                    self._positions.clear()
                self._positions[id(array)] = weakref.ref(array), number << 48 | offset
                return number << 48 | offset
        return -1

    def rows(self, position: int, size: int) -> Sequence[np.ndarray]:
        """Views of the ``size`` bytes at ``position`` in every rank's row."""
        offset = position & (1 << 48) - 1
        return [row[offset : offset + size] for row in self._windows[position >> 48].rows]


def _on_all(barrier: SharedBarrier, flags: int) -> int:
    """The bits that are set on all ranks; collective."""
    barrier.compare(flags)
    for word in barrier.words():
        flags &= word
    return flags


def has_room(size: int) -> bool:
    """Whether shared memory has as many bytes left, and some more; True where nothing tells."""
    return size + SPARE <= room()


def room() -> float:
    """The bytes that are left of shared memory; infinite where nothing tells."""
    try:
        found = os.statvfs(SHARED_FILES)
    except (AttributeError, OSError):
        return math.inf
    return found.f_bavail * found.f_frsize


__all__ = ["SHARED_FILES", "SPARE", "Window", "Windows", "has_room", "room"]
