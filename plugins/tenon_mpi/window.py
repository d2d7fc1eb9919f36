"""Shared-memory windows: one row of bytes for each rank of a node, from ``MPI_Win_allocate_shared``.

Windows are never freed while the program runs: freeing is collective, and arrays may still view the memory.
``Windows`` is a pool: it reuses a window of fitting size once all ranks have dropped their arrays in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np

from tenon_mpi.library import Mpi, MpiComm

PAGE = 4096
CACHED_POSITIONS = 256
"""Size of the cache of positions of arrays."""


class Window:
    """One row of ``size`` zero bytes for each rank of ``node``."""

    def __init__(self, mpi: Mpi, node: MpiComm, size: int) -> None:
        self.size = -(-max(size, 1) // PAGE) * PAGE
        self._handle = mpi.Win.Allocate_shared(self.size, 1, comm=node)
        self.rows: list[np.ndarray] = [
            np.frombuffer(self._handle.Shared_query(rank)[0], np.uint8) for rank in range(node.Get_size())
        ]
        self.rank = node.Get_rank()
        self.start = int(self.rows[self.rank].ctypes.data)
        self.dropped = False

    def take(self, count: int, dtype: np.dtype) -> np.ndarray:
        """This rank's row as an array of zeros; ``dropped`` is set once the array and its views are gone."""
        self.dropped = False
        base = np.frombuffer(memoryview(self.rows[self.rank]), np.uint8)[: count * dtype.itemsize]
        base[...] = 0
        # A view's base is the array that owns no memory of its own: `holder`, which all views keep alive.
        holder = _Holder(base)
        weakref.finalize(holder, self._drop).atexit = False
        return np.asarray(holder).view(dtype)

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
        self._positions: dict[int, tuple[weakref.ref[np.ndarray], int]] = {}

    def allocate(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Allocate a zeroed 1-D array in shared memory; collective over the ranks of the node."""
        needed = count * dtype.itemsize
        free = np.array([window.dropped for window in self._windows], np.uint8)
        self._node.Allreduce(self._mpi.IN_PLACE, free, self._mpi.MIN)
        fitting = [
            w for w, f in zip(self._windows, free, strict=True) if f and needed <= w.size <= 2 * needed
        ]
        if fitting:
            window = min(fitting, key=lambda one: one.size)
        else:
            window = Window(self._mpi, self._node, needed)
            self._windows.append(window)
        array = window.take(count, dtype)
        self._node.Barrier()  # No rank may write into rows that others are still clearing.
        return array

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


__all__ = ["Window", "Windows"]
