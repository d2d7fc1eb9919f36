"""Collectives in memory that the ranks of a node share.

An array in a window (``Windows.allocate``) is reduced where it lies: each rank combines its slice of all
ranks' rows, block by block in cache, and writes the result into every row. Other arrays pass through a stage,
two halves of one window that are used in turn, so that one meeting a piece is enough (``meeting.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.extend import engine
from tenon_mpi import kernels
from tenon_mpi.meeting import LINE, Meeting
from tenon_mpi.messages import pieces
from tenon_mpi.window import Window, Windows

HALF_BYTES = 2 << 20
"""Large pieces: a meeting costs little, unless others want the cores as well."""
BLOCK_BYTES = 1 << 20
"""Of all ranks together: what a core's cache holds."""
TYPED = 256
"""How many views of rows are remembered: making them takes longer than adding 1 KB."""
WHOLE_BYTES = 32 << 10
"""Up to this size an array is staged before the ranks compare their calls, and every rank reduces all of it:
the comparison is the only meeting."""
BETWEEN_BYTES = 4 << 20
"""Half of the stage, and length of a block, where slices go on to other nodes: a message costs more there."""
Array = np.ndarray[Any, Any]
Between = Callable[[Array, engine.ReduceOp], None]


class SharedMemory:
    """Collectives of the ranks of ``node``, an mpi4py communicator whose ranks can share memory.

    ``between``, if given, is called with each slice that this rank has reduced over the node, in accumulator
    dtype, before it is published: ``ways.layer`` reduces it over the nodes there. ``total`` is the number
    of ranks that a mean divides by.
    """

    def __init__(
        self,
        mpi: Any,
        node: Any,
        windows: Windows,
        total: int,
        between: Between | None = None,
        patient: bool = False,
    ) -> None:
        self._rank, self._size = node.Get_rank(), node.Get_size()
        self._total, self._between = total, between
        self._windows = windows
        self._half = size = HALF_BYTES if between is None else BETWEEN_BYTES
        stage = Window(mpi, node, LINE + 2 * size)
        self._halves = [[row[LINE + half * size :][:size] for row in stage.rows] for half in (0, 1)]
        self._sums = 0
        self._typed: dict[Any, list[Array]] = {}
        self._lying: dict[Any, list[Array]] = {}
        self._staged: tuple[int, list[Array]] = -1, []
        lines = [row[:LINE].data.cast("q") for row in stage.rows]
        self.meeting = Meeting(lines, self._rank, stage.fence, patient)
        node.Barrier()  # All lines say whose they are.

    def all_reduce(self, source: Array, target: Array, op: engine.ReduceOp) -> None:
        """Reduce flat ``source`` into flat ``target``, which may be the same array.

        On ranks of one node the last comparison says where in a window it lies on all of them, if it does.
        What was staged before it is there.
        """
        if self._between is None and source.nbytes <= WHOLE_BYTES:
            meeting, rows = self._staged
            if meeting == self.meeting.number:
                engine.reduce_into(rows, op, target)
            else:
                self._reduce_whole(source, target, op)
            return
        if self._between is not None:
            # Over several nodes calls were compared by messages: the ranks of this one meet here.
            self.meeting.compare(0, 0, self._windows.place(target) if target is source else -1)
        place = self.meeting.placed
        if place >= 0:
            self._reduce_slices(self._slices_at(place, target), op)
            self.meeting.wait()
            return
        item = source.dtype.itemsize
        direct = self._between is None and self._size == 2
        for start, stop in pieces(source.size, item, self._half):
            reduce = self._reduce_whole if direct else self._reduce_staged
            reduce(source[start:stop], target[start:stop], op)

    def broadcast(self, target: Array, root: int) -> None:
        """The root stages, the others copy."""
        data = target.view(np.uint8)
        for start, stop in pieces(data.size, 1, self._half):
            half = self._next_half()
            if self._rank == root:
                half[root][: stop - start] = data[start:stop]
            self.meeting.wait()
            if self._rank != root:
                data[start:stop] = half[root][: stop - start]

    def all_gather(self, source: Array, target: Array) -> None:
        """Everybody stages, everybody copies."""
        sent = source.view(np.uint8)
        rows = target.reshape(-1).view(np.uint8).reshape(self._size, sent.size)
        for start, stop in pieces(sent.size, 1, self._half):
            half = self._next_half()
            half[self._rank][: stop - start] = sent[start:stop]
            self.meeting.wait()
            for row, staged in zip(rows, half, strict=True):
                row[start:stop] = staged[: stop - start]

    def all_to_all(self, source: Array, target: Array) -> None:
        """Everybody stages columns of all rows; rank r copies row r of each."""
        for start, stop, staged in self._staged_columns(source):
            for row, rows in zip(target, staged, strict=True):
                row[start:stop] = rows[self._rank]

    def reduce_scatter(self, source: Array, target: Array, op: engine.ReduceOp) -> None:
        """Everybody stages columns of all rows; rank r reduces row r of each."""
        for start, stop, staged in self._staged_columns(source):
            engine.reduce_into([rows[self._rank] for rows in staged], op, target[start:stop])

    def _staged_columns(self, source: Array) -> Any:
        size, dtype = self._size, source.dtype
        for start, stop in pieces(source.shape[1], dtype.itemsize * size, self._half):
            half = self._next_half()
            count = size * (stop - start) * dtype.itemsize
            staged = [row[:count].view(dtype).reshape(size, stop - start) for row in half]
            staged[self._rank][...] = source[:, start:stop]
            self.meeting.wait()
            yield start, stop, staged

    def _next_half(self) -> list[Array]:
        """The rows of all ranks that may be written before the next meeting."""
        return self._halves[(self.meeting.number + 1) & 1]

    def stage(self, source: Array) -> list[Array]:
        """Copy flat ``source`` to where all ranks see it after the next meeting; returns the rows of all."""
        meeting = self.meeting.number + 1
        key = (meeting & 1, source.size, source.dtype)
        rows = self._typed.get(key)
        if rows is None:
            if len(self._typed) >= TYPED:
                self._typed.clear()
            rows = [row[: source.nbytes].view(source.dtype) for row in self._next_half()]
            self._typed[key] = rows
        rows[self._rank][...] = source
        self._staged = meeting, rows
        return rows

    def _reduce_whole(self, source: Array, target: Array, op: engine.ReduceOp) -> None:
        """Stage, meet, reduce everything."""
        rows = self.stage(source)
        self.meeting.wait()
        engine.reduce_into(rows, op, target)

    def _slices_at(self, place: int, like: Array) -> list[Array]:
        """Of what all ranks have at ``place`` of a window, the part that this rank reduces."""
        key = place, like.size, like.dtype
        slices = self._lying.get(key)
        if slices is None:
            if len(self._lying) >= TYPED:
                self._lying.clear()
            first, last = slice_bounds(self._rank, self._size, like.size)
            rows = [row.view(like.dtype) for row in self._windows.rows(place, like.nbytes)]
            slices = self._lying[key] = [row[first:last] for row in rows]
        return slices

    def _reduce_staged(self, source: Array, target: Array, op: engine.ReduceOp) -> None:
        """Stage, meet, reduce a slice, meet, collect the slices."""
        half, count, dtype = self._next_half(), source.nbytes, source.dtype
        half[self._rank][:count] = source.view(np.uint8)
        self.meeting.wait()
        start, stop = self._slice(self._rank, source.size)
        results = self._next_half()
        rows = [row[:count].view(dtype)[start:stop] for row in half]
        self._reduce(rows, results[self._rank][: (stop - start) * dtype.itemsize].view(dtype), op)
        self.meeting.wait()
        for rank, row in enumerate(results):
            start, stop = self._slice(rank, source.size)
            target[start:stop] = row[: (stop - start) * dtype.itemsize].view(dtype)

    def _reduce_slices(self, slices: list[Array], op: engine.ReduceOp) -> None:
        """Combine what all ranks have of this rank's slice, and write the result into each of ``slices``."""
        if self._between is None and op in (engine.ReduceOp.SUM, engine.ReduceOp.AVG):
            self._sums += 1
            dtype = slices[0].dtype
            kernel = kernels.find(self._size, dtype) if self._sums > kernels.CALLS else None
            if kernel is not None:
                kernel(dtype.type(self._size if op is engine.ReduceOp.AVG else 1), *slices)
                return
        mine = slices[self._rank]
        others = [one for rank, one in enumerate(slices) if rank != self._rank]
        length = BLOCK_BYTES // self._size if self._between is None else BETWEEN_BYTES
        for start, stop in pieces(mine.size, mine.dtype.itemsize, length):
            self._reduce([one[start:stop] for one in slices], mine[start:stop], op)
            for other in others:
                other[start:stop] = mine[start:stop]

    def _reduce(self, arrays: Sequence[Array], target: Array, op: engine.ReduceOp) -> None:
        if self._between is None:
            engine.reduce_into(arrays, op, target)
            return
        wide = engine.accumulator(target.dtype)
        total = target if wide == target.dtype else np.empty(target.shape, wide)
        engine.combine(arrays, op, total)
        self._between(total, engine.element_op(op, target.dtype))
        if op is engine.ReduceOp.AVG:
            engine.divide(total, self._total)
        if total is not target:
            np.copyto(target, total, casting="unsafe")

    def _slice(self, rank: int, count: int) -> tuple[int, int]:
        """Bounds of the elements that ``rank`` reduces."""
        return slice_bounds(rank, self._size, count)


def slice_bounds(rank: int, size: int, count: int) -> tuple[int, int]:
    """Bounds of ``rank``'s share of ``count`` elements; whole cache lines, for no two ranks write to one."""
    lines = -(-count // 64)
    return min(count, lines * rank // size * 64), min(count, lines * (rank + 1) // size * 64)


__all__ = ["SharedMemory", "slice_bounds"]
