"""Collectives on several arrays in one call: the shards of a module's parameters, or their gradients.

One call compares the ranks once, and an engine may exchange all arrays together, without packing them into
one message first. ``start_...`` begin a call that completes in ``wait``, where communication overlaps with
computation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.distributed.communication.calls import Call, Work, cached_call
from tenon.distributed.communication.reduction import (
    ReduceOp,
    check_transferable,
    dtype_name,
    reduction_call,
)
from tenon.errors import ShapeError

if TYPE_CHECKING:
    from tenon.distributed.communication.calls import Args, Result

#: Flat arrays, one of each parameter.
Arrays = Sequence[np.ndarray]


class SeveralArrays:
    """Mixin of ``Communicator``."""

    size: int

    if TYPE_CHECKING:

        def _do(self, call: Call, perform: Callable[[*Args], Result], *args: *Args) -> Result: ...

        def perform_all_gather(self, source: np.ndarray, target: np.ndarray) -> None:
            """Of ``Communicator``."""

        def perform_reduce_scatter(self, source: np.ndarray, target: np.ndarray, op: ReduceOp) -> None:
            """Of ``Communicator``."""

    def common_memory(self, size: int, *, name: str | None = None) -> np.ndarray | None:
        """``size`` bytes that all ranks share as one place of memory, or None where they do not; collective.

        For the ``outs`` of ``all_gather_several``, which then takes one copy of each row in place of one on
        every rank: what any rank writes, all of them read. The memory is reused once no rank has an array in
        it.
        """
        return None

    def readable_memory(self, size: int, *, name: str | None = None) -> np.ndarray | None:
        """``size`` bytes of this rank's own that the others can read, or None where they cannot; collective.

        ``reduce_scatter_several`` of ``arrays`` in it copies nothing. The ranks read them until the next
        collective call begins: before, they must not be written to.
        """
        return None

    def all_gather_several(self, arrays: Arrays, outs: Arrays, *, name: str | None = None) -> Work:
        """Gather each of the flat ``arrays``: ``outs[i]`` is ``[size, n_i]``, with row r of rank r.

        The arrays are contiguous and may have several dtypes; each has that of its ``out``.
        """
        self._check_several(outs, arrays, "all_gather_several")
        self.expect_several(outs, gathered=True)
        total = sum(array.nbytes for array in arrays)
        kinds = "+".join(sorted({dtype_name(array.dtype) for array in arrays}))
        call = cached_call("all_gather", f"{len(arrays)} arrays of {kinds}", (total,), "bytes", name)
        sources = [array.view(np.uint8) for array in arrays]
        targets = [out.view(np.uint8) for out in outs]
        self._do(call, self.perform_all_gather_several, sources, targets)
        return Work(np.empty(0, np.uint8))

    def reduce_scatter_several(
        self, arrays: Arrays, outs: Arrays, op: str = ReduceOp.SUM, *, name: str | None = None
    ) -> Work:
        """Reduce each of ``arrays``, ``[size, n_i]``, over the ranks; rank r gets row r in ``outs[i]``.

        All have one dtype. The contents of ``arrays`` are undefined afterwards, and see ``readable_memory``.
        """
        self._check_several(arrays, outs, "reduce_scatter_several")
        self.expect_several(arrays, gathered=False)
        total = sum(out.size for out in outs)
        dtype = outs[0].dtype if outs else np.dtype(np.float32)
        operation, call = reduction_call("reduce_scatter", op, (self.size, total), dtype, name)
        self._do(call, self.perform_reduce_scatter_several, list(arrays), list(outs), operation)
        return Work(np.empty(0, np.uint8))

    def start_all_gather_several(self, arrays: Arrays, outs: Arrays, *, name: str | None = None) -> Work:
        """``all_gather_several``, asynchronous on engines that overlap; nothing may be accessed before
        ``wait``."""
        return self.all_gather_several(arrays, outs, name=name)

    def start_reduce_scatter_several(
        self, arrays: Arrays, outs: Arrays, op: str = ReduceOp.SUM, *, name: str | None = None
    ) -> Work:
        """``reduce_scatter_several``, asynchronous on engines that overlap."""
        return self.reduce_scatter_several(arrays, outs, op, name=name)

    # Engines may replace these; the latter pack the arrays into one.

    def expect_several(self, arrays: Arrays, *, gathered: bool) -> None:
        """Prepare for ``arrays`` that are ``gathered`` into, or else reduced, before calls are compared."""
        return

    def perform_all_gather_several(self, sources: Arrays, targets: Arrays) -> None:
        """Gather arrays of bytes: ``targets[i]`` is ``[size, n_i]``."""
        if len(sources) == 1:
            self.perform_all_gather(sources[0], targets[0])
            return
        gathered = np.empty((self.size, sum(source.size for source in sources)), np.uint8)
        packed = np.concatenate(sources) if sources else np.empty(0, np.uint8)
        self.perform_all_gather(packed, gathered)
        start = 0
        for target in targets:
            target[...] = gathered[:, start : start + target.shape[1]]
            start += target.shape[1]

    def perform_reduce_scatter_several(self, sources: Arrays, targets: Arrays, op: ReduceOp) -> None:
        """Reduce arrays of rows, ``[size, n_i]``, each into a flat target."""
        if len(sources) == 1:
            self.perform_reduce_scatter(sources[0], targets[0], op)
            return
        if not sources:
            return
        reduced = np.empty(sum(target.size for target in targets), targets[0].dtype)
        self.perform_reduce_scatter(np.concatenate(sources, axis=1), reduced, op)
        start = 0
        for target in targets:
            target[...] = reduced[start : start + target.size]
            start += target.size

    def _check_several(self, stacked: Arrays, flat: Arrays, kind: str) -> None:
        """Raise ShapeError unless ``stacked`` has a row for each rank of every flat array."""
        if len(stacked) != len(flat):
            raise ShapeError(f"{kind}: {len(flat)} arrays need as many results, not {len(stacked)}.")
        for rows, array in zip(stacked, flat, strict=True):
            check_transferable(array.dtype)
            if array.ndim != 1 or rows.shape != (self.size, array.size) or rows.dtype != array.dtype:
                raise ShapeError(
                    f"{kind}: {dtype_name(array.dtype)}{list(array.shape)} beside"
                    f" {dtype_name(rows.dtype)}{list(rows.shape)}; flat arrays and rows of the same dtype,"
                    f" one row for each of {self.size} ranks, are needed."
                )
            if not (array.flags.c_contiguous and rows.flags.c_contiguous):
                raise ShapeError(f"{kind}: an array of {list(rows.shape)} is not contiguous. Copy it first.")
