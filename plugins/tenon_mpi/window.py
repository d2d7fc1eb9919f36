"""Memory that all ranks of a node map: one row of bytes each, from ``MPI_Win_allocate_shared``.

Windows are never freed while the program runs: freeing is collective, and arrays may still show the memory.
``Windows`` gives the rows of arrays that all ranks have dropped to the next one that asks for as much.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
PAGE = 4096
REMEMBERED = 256
"""Of how many arrays the places are."""


class Window:
    """One row of ``size`` zero bytes for each rank of ``node``."""

    def __init__(self, mpi: Any, node: Any, size: int) -> None:
        self.size = -(-max(size, 1) // PAGE) * PAGE
        self._made = mpi.Win.Allocate_shared(self.size, 1, comm=node)
        self.rows: list[Array] = [
            np.frombuffer(self._made.Shared_query(rank)[0], np.uint8) for rank in range(node.Get_size())
        ]
        self.rank = node.Get_rank()
        self.start = int(self.rows[self.rank].ctypes.data)
        self.dropped = False

    def give(self, count: int, dtype: np.dtype[Any]) -> Array:
        """This rank's row as an array of zeros; free again when the array and its views are gone."""
        self.dropped = False
        base = np.frombuffer(memoryview(self.rows[self.rank]), np.uint8)[: count * dtype.itemsize]
        base[...] = 0
        # A view's base is the array that owns no memory of its own: `holder`, which all views keep alive.
        holder = _Holder(base)
        weakref.finalize(holder, self._drop).atexit = False
        return np.asarray(holder).view(dtype)

    def fence(self) -> None:
        """Order this rank's reads and writes as seen by the others, where the processor does not."""
        self._made.Sync()

    def _drop(self) -> None:
        self.dropped = True


class _Holder:
    """Gives NumPy the memory of an array; arrays made of it keep this object alive."""

    def __init__(self, array: Array) -> None:
        self.__array_interface__ = array.__array_interface__
        self._array = array


class Windows:
    """The windows that arrays were given from, in the same order on every rank of the node."""

    def __init__(self, mpi: Any, node: Any) -> None:
        self._mpi = mpi
        self._node = node
        self._made: list[Window] = []
        self._places: dict[int, tuple[weakref.ref[Array], int]] = {}

    def allocate(self, count: int, dtype: np.dtype[Any]) -> Array:
        """An array in shared memory; all ranks of the node call it together."""
        needed = count * dtype.itemsize
        free = np.array([window.dropped for window in self._made], np.uint8)
        self._node.Allreduce(self._mpi.IN_PLACE, free, self._mpi.MIN)
        fitting = [w for w, f in zip(self._made, free, strict=True) if f and needed <= w.size <= 2 * needed]
        if fitting:
            window = min(fitting, key=lambda one: one.size)
        else:
            window = Window(self._mpi, self._node, needed)
            self._made.append(window)
        given = window.give(count, dtype)
        self._node.Barrier()  # Nobody may write into rows that others are still clearing.
        return given

    def place(self, array: Array) -> int:
        """Where contiguous ``array`` lies: a number equal on ranks that mean one place; -1: private."""
        if array.base is None:
            return -1
        known = self._places.get(id(array))
        if known is not None and known[0]() is array:
            return known[1]  # Asking NumPy for an address takes 1 us.
        start: int = array.__array_interface__["data"][0] if self._made else 0
        for number, window in enumerate(self._made):
            offset = start - window.start
            if 0 <= offset < window.size:
                if len(self._places) >= REMEMBERED:
                    self._places.clear()
                self._places[id(array)] = weakref.ref(array), number << 48 | offset
                return number << 48 | offset
        return -1

    def rows(self, place: int, size: int) -> Sequence[Array]:
        """The ``size`` bytes at ``place`` of every rank."""
        offset = place & (1 << 48) - 1
        return [row[offset : offset + size] for row in self._made[place >> 48].rows]


__all__ = ["Window", "Windows"]
