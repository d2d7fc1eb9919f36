"""Collectives in memory that the ranks of a node share.

An array in a shared window (``Windows.allocate``) is reduced in place: each rank combines its slice of all
ranks' rows, block by block in cache, and writes the result into every row. Other arrays are copied through a
staging window, a double buffer, so that one barrier a piece is enough (``barrier.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tenon.extend import engine
from tenon_mpi import kernels
from tenon_mpi.barrier import LINE, SharedBarrier
from tenon_mpi.library import Mpi, MpiComm
from tenon_mpi.messages import pieces
from tenon_mpi.window import Window, Windows

STAGING_BYTES = 2 << 20
"""One buffer of the staging window. Large, because ranks that compete for cores pay much for a barrier."""
BLOCK_BYTES = 1 << 20
"""Of all ranks together: what fits into a core's cache."""
CACHED_VIEWS = 256
"""Size of each cache of views of rows: making the views takes longer than adding 1 KB."""
WHOLE_BYTES = 32 << 10
"""Up to this size an array is staged before the ranks compare their calls: the comparison is the only
barrier. Every rank reduces all of it."""
INTER_NODE_BYTES = 4 << 20
"""Staging buffer and block length where slices are sent on to other nodes: a message costs more there."""
MEMORY_OF_RANK = {"shared": LINE + 2 * STAGING_BYTES, "hierarchical": 2 * (LINE + 2 * INTER_NODE_BYTES)}
"""Bytes of the staging windows of each rank of a node, by transport; of two communicators between nodes."""
#: Reduces a slice over the nodes, in place.
Between = Callable[[np.ndarray, engine.ReduceOp], None]


class SharedMemory:
    """Collectives of the ranks of ``node``, an mpi4py communicator whose ranks can share memory.

    ``between``, if given, is called with each slice that this rank has reduced over the node, in accumulator
    dtype, before it is published: ``transports.hierarchical`` reduces it over the nodes there.
    ``clock`` counts how long this rank waits.
    ``total`` is the number of ranks that a mean divides by.
    """

    def __init__(
        self,
        mpi: Mpi,
        node: MpiComm,
        windows: Windows,
        total: int,
        between: Between | None = None,
        background: bool = False,
        clock: engine.Clock | None = None,
    ) -> None:
        self._rank, self._size = node.Get_rank(), node.Get_size()
        self._total, self._between = total, between
        self._windows = windows
        self._buffer_bytes = size = STAGING_BYTES if between is None else INTER_NODE_BYTES
        stage = Window(mpi, node, LINE + 2 * size)
        self._buffers = [[row[LINE + parity * size :][:size] for row in stage.rows] for parity in (0, 1)]
        self._sums = 0
        self._staging_views: dict[tuple[int, int, np.dtype], list[np.ndarray]] = {}
        self._window_slices: dict[tuple[int, int, np.dtype], list[np.ndarray]] = {}
        self._staged: tuple[int, list[np.ndarray]] = -1, []
        lines = [row[:LINE].data.cast("q") for row in stage.rows]
        self.barrier = SharedBarrier(lines, self._rank, stage.fence, background, clock)
        node.Barrier()  # Every rank has written its PID into its line.

    def all_reduce(self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp) -> None:
        """Reduce flat ``source`` into flat ``target``, which may be the same array.

        Within one node the comparison before it (``compare``) has established the array's position in a
        shared window, if that is the same on all ranks, and made what ``stage`` copied visible.
        """
        if self._between is None and source.nbytes <= WHOLE_BYTES:
            rows = self._already_staged()
            if rows is not None:
                engine.reduce_into(rows, op, target)
            else:
                self._reduce_whole(source, target, op)
            return
        if self._between is not None:
            # Over several nodes calls were compared by messages, so this node's ranks synchronize here.
            self.barrier.compare(0, self._windows.position_of(target) if target is source else -1)
        position = self.barrier.common_position
        if position >= 0:
            self._reduce_slices(self._slices_at(position, target), op)
            self.barrier.wait()
            return
        item = source.dtype.itemsize
        direct = self._between is None and self._size == 2
        for start, stop in pieces(source.size, item, self._buffer_bytes):
            reduce = self._reduce_whole if direct else self._reduce_staged
            reduce(source[start:stop], target[start:stop], op)

    def broadcast(self, target: np.ndarray, root: int) -> None:
        """Copy through the staging buffer: the root writes, the others read."""
        rows = self._already_staged()
        if rows is not None:
            target[...] = rows[root]
            return
        data = target.view(np.uint8)
        for start, stop in pieces(data.size, 1, self._buffer_bytes):
            buffer = self._next_buffer()
            if self._rank == root:
                buffer[root][: stop - start] = data[start:stop]
            self.barrier.wait()
            if self._rank != root:
                data[start:stop] = buffer[root][: stop - start]

    def all_gather(self, source: np.ndarray, target: np.ndarray) -> None:
        """Copy through the staging buffers: every rank writes its row and reads all."""
        rows = self._already_staged()
        if rows is not None:
            for row, staged in zip(target, rows, strict=True):
                row[...] = staged
            return
        sent = source.view(np.uint8)
        received = target.reshape(-1).view(np.uint8).reshape(self._size, sent.size)
        for start, stop in pieces(sent.size, 1, self._buffer_bytes):
            buffer = self._next_buffer()
            buffer[self._rank][: stop - start] = sent[start:stop]
            self.barrier.wait()
            for row, staged in zip(received, buffer, strict=True):
                row[start:stop] = staged[: stop - start]

    def all_to_all(self, source: np.ndarray, target: np.ndarray) -> None:
        """Stage columns of all rows; rank r copies row r of each rank's."""
        for start, stop, staged in self._staged_columns(source):
            for row, rows in zip(target, staged, strict=True):
                row[start:stop] = rows[self._rank]

    def reduce_scatter(self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp) -> None:
        """Stage columns of all rows; rank r reduces row r of each rank's."""
        for start, stop, staged in self._staged_columns(source):
            engine.reduce_into([rows[self._rank] for rows in staged], op, target[start:stop])

    def all_gather_several(self, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> None:
        """Copy flat arrays of bytes through the staging buffers, many in each buffer.

        Of targets in common memory, of which the comparison has established the position, every rank writes
        its rows.
        """
        if self.barrier.common_position >= 0:
            for source, target in zip(sources, targets, strict=True):
                target[self._rank] = source
            self.barrier.wait()
            return
        for parts in batches([source.size for source in sources], 1, self._buffer_bytes):
            buffer = self._next_buffer()
            for index, start, stop, at in parts:
                buffer[self._rank][at : at + stop - start] = sources[index][start:stop]
            self.barrier.wait()
            for rank, row in enumerate(buffer):
                for index, start, stop, at in parts:
                    targets[index][rank, start:stop] = row[at : at + stop - start]

    def reduce_scatter_several(
        self, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], op: engine.ReduceOp
    ) -> None:
        """Each rank reduces its own row of all sources, which it reads in their window; of others, columns of
        the rows of the other ranks are staged."""
        size, own = self._size, self._rank
        if self.barrier.common_position >= 0:
            for source, target in zip(sources, targets, strict=True):
                rows = [part[own] for part in self._windows.parts_like(self.barrier.common_position, source)]
                for start, stop in pieces(target.size, target.dtype.itemsize, BLOCK_BYTES // size):
                    engine.reduce_into([row[start:stop] for row in rows], op, target[start:stop])
            return
        item = targets[0].dtype.itemsize if targets else 1
        others = [rank for rank in range(size) if rank != own]
        for parts in batches([target.size for target in targets], item * size, self._buffer_bytes):
            buffer = self._next_buffer()
            blocks = []
            for index, start, stop, at in parts:
                end = at + (stop - start) * item * size
                staged = [
                    row[at:end].view(targets[index].dtype).reshape(size, stop - start) for row in buffer
                ]
                for rank in others:
                    staged[own][rank] = sources[index][rank, start:stop]
                blocks.append(staged)
            self.barrier.wait()
            for (index, start, stop, _), staged in zip(parts, blocks, strict=True):
                rows = [rows[own] for rows in staged]
                rows[own] = sources[index][own, start:stop]
                engine.reduce_into(rows, op, targets[index][start:stop])

    def _staged_columns(self, source: np.ndarray) -> Iterator[tuple[int, int, list[np.ndarray]]]:
        """Stage blocks of columns; yield their bounds and the staged blocks of all ranks."""
        size, dtype = self._size, source.dtype
        whole = self._already_staged()
        if whole is not None:
            yield 0, source.shape[1], [row.reshape(size, source.shape[1]) for row in whole]
            return
        for start, stop in pieces(source.shape[1], dtype.itemsize * size, self._buffer_bytes):
            buffer = self._next_buffer()
            count = size * (stop - start) * dtype.itemsize
            staged = [row[:count].view(dtype).reshape(size, stop - start) for row in buffer]
            staged[self._rank][...] = source[:, start:stop]
            self.barrier.wait()
            yield start, stop, staged

    def _next_buffer(self) -> list[np.ndarray]:
        """The rows of all ranks in the staging buffer that may be written before the next barrier."""
        return self._buffers[(self.barrier.number + 1) & 1]

    def stage(self, source: np.ndarray) -> list[np.ndarray]:
        """Copy flat ``source`` into the staging buffer, visible after the next barrier; returns all rows."""
        number = self.barrier.number + 1
        key = (number & 1, source.size, source.dtype)
        rows = self._staging_views.get(key)
        if rows is None:
            if len(self._staging_views) >= CACHED_VIEWS:
                self._staging_views.clear()
            rows = [row[: source.nbytes].view(source.dtype) for row in self._next_buffer()]
            self._staging_views[key] = rows
        rows[self._rank][...] = source
        self._staged = number, rows
        return rows

    def _already_staged(self) -> list[np.ndarray] | None:
        """The rows that ``stage`` copied before the last barrier; None if it was not called."""
        number, rows = self._staged
        return rows if number == self.barrier.number else None

    def _reduce_whole(self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp) -> None:
        """Stage, synchronize, and reduce all of the array on every rank."""
        rows = self.stage(source)
        self.barrier.wait()
        engine.reduce_into(rows, op, target)

    def _slices_at(self, position: int, like: np.ndarray) -> list[np.ndarray]:
        """Views of this rank's slice of every rank's array at ``position`` in a window."""
        key = position, like.size, like.dtype
        slices = self._window_slices.get(key)
        if slices is None:
            if len(self._window_slices) >= CACHED_VIEWS:
                self._window_slices.clear()
            first, last = slice_bounds(self._rank, self._size, like.size)
            rows = [row.view(like.dtype) for row in self._windows.rows(position, like.nbytes)]
            slices = self._window_slices[key] = [row[first:last] for row in rows]
        return slices

    def _reduce_staged(self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp) -> None:
        """Stage, synchronize, reduce this rank's slice, synchronize, and copy all slices."""
        buffer, count, dtype = self._next_buffer(), source.nbytes, source.dtype
        buffer[self._rank][:count] = source.view(np.uint8)
        self.barrier.wait()
        start, stop = self._slice(self._rank, source.size)
        results = self._next_buffer()
        rows = [row[:count].view(dtype)[start:stop] for row in buffer]
        self._reduce(rows, results[self._rank][: (stop - start) * dtype.itemsize].view(dtype), op)
        self.barrier.wait()
        for rank, row in enumerate(results):
            start, stop = self._slice(rank, source.size)
            target[start:stop] = row[: (stop - start) * dtype.itemsize].view(dtype)

    def _reduce_slices(self, slices: list[np.ndarray], op: engine.ReduceOp) -> None:
        """Reduce ``slices``, this rank's slice of every rank's array, and write the result into each."""
        if self._between is None and op in (engine.ReduceOp.SUM, engine.ReduceOp.AVG):
            self._sums += 1
            dtype = slices[0].dtype
            kernel = kernels.find(self._size, dtype) if self._sums > kernels.CALLS else None
            if kernel is not None:
                kernel(dtype.type(self._size if op is engine.ReduceOp.AVG else 1), *slices)
                return
        own_slice = slices[self._rank]
        others = [part for rank, part in enumerate(slices) if rank != self._rank]
        length = BLOCK_BYTES // self._size if self._between is None else INTER_NODE_BYTES
        for start, stop in pieces(own_slice.size, own_slice.dtype.itemsize, length):
            self._reduce([part[start:stop] for part in slices], own_slice[start:stop], op)
            for other in others:
                other[start:stop] = own_slice[start:stop]

    def _reduce(self, arrays: Sequence[np.ndarray], target: np.ndarray, op: engine.ReduceOp) -> None:
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
    """Bounds of ``rank``'s share of ``count`` elements, in whole cache lines: no two ranks write to one."""
    lines = -(-count // 64)
    return min(count, lines * rank // size * 64), min(count, lines * (rank + 1) // size * 64)


def batches(counts: Sequence[int], itemsize: int, size: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Divide arrays of ``counts`` elements into parts that fill a buffer of ``size`` bytes, in order.

    Yields the parts of each buffer: the array, its first element and end, and the offset in the buffer.

    >>> list(batches([3, 90], 4, 256))
    [[(0, 0, 3, 0), (1, 0, 32, 128)], [(1, 32, 90, 0)]]
    """
    parts: list[tuple[int, int, int, int]] = []
    at = 0
    for index, count in enumerate(counts):
        start = 0
        while start < count:
            stop = min(count, start + (size - at) // itemsize)
            if stop > start:
                parts.append((index, start, stop, at))
                at = -(-(at + (stop - start) * itemsize) // LINE) * LINE
                start = stop
            if start < count or at >= size:
                yield parts
                parts, at = [], 0
    if parts:
        yield parts


__all__ = ["SharedMemory", "batches", "slice_bounds"]
