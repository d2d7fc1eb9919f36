"""Bring a sharded array from some placements to others, one mesh dimension at a time.

Shard to Replicate is an all-gather, Partial to Replicate an all-reduce, Partial to Shard a reduce-scatter,
Shard to another Shard an all-to-all; the rest needs no communication. Shards of unequal size are padded, as
collectives exchange equal parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.distributed.tensor.chunks import chunk_of, local_part
from tenon.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, split_order
from tenon.engine.aval import Aval
from tenon.errors import UnsupportedError

if TYPE_CHECKING:
    from tenon.distributed.device_mesh import DeviceMesh
    from tenon.distributed.tensor.sharded_array import Placements

#: An array of the host, or an Aval on the meta device, where nothing is sent.
Local = np.ndarray


def redistribute(
    local: Local, shape: tuple[int, ...], source: Placements, target: Placements, mesh: DeviceMesh, name: str
) -> Local:
    """The part by ``target`` placements of an array of ``shape`` whose part by ``source`` is ``local``."""
    if isinstance(local, Aval):
        coordinate = mesh.get_coordinate() or [0] * mesh.ndim
        return local.with_shape(local_part(shape, target, mesh.shape, coordinate)[0])
    return _Steps(local, shape, source, target, mesh, name).run()


class _Steps:
    """The steps of one redistribution: ``current`` are the placements of ``local`` so far."""

    def __init__(
        self,
        local: Local,
        shape: tuple[int, ...],
        source: Placements,
        target: Placements,
        mesh: DeviceMesh,
        name: str,
    ) -> None:
        self.local, self.shape, self.target, self.mesh, self.name = local, shape, target, mesh, name
        self.current: list[Placement] = list(source)
        self.order = split_order(source)
        """The order in which the mesh dimensions of ``current`` split."""

    def run(self) -> Local:
        """The local part by the target placements."""
        then = split_order(self.target)
        for dim in reversed(self.order):
            self._unshard(dim, then)
        self.order = then
        for dim in then:
            self._place(dim)
        return self.local

    def _unshard(self, dim: int, order: Sequence[int]) -> None:
        """Gather dimension ``dim`` if it, or an outer split of the same axis, will change.

        ``order`` is that in which the target splits.
        """
        now, then = self.current[dim], self.target[dim]
        if not isinstance(now, Shard):
            return
        outer = _outer(dim, now.dim, self.current, self.order)
        if isinstance(then, Shard) and then.dim == now.dim:
            if outer == _outer(dim, now.dim, self.target, order):
                self.current[dim] = then
                return
        elif isinstance(then, Shard) and self._alone(dim, now, then):
            self._exchange(dim, now.dim, then)
            return
        self._gather(dim, now.dim)

    def _alone(self, dim: int, now: Shard, then: Shard) -> bool:
        """Whether no other mesh dimension splits the two axes, before or after."""
        others = [
            p for placements in (self.current, self.target) for e, p in enumerate(placements) if e != dim
        ]
        return not any(isinstance(p, Shard) and p.dim in (now.dim, then.dim) for p in others)

    def _place(self, dim: int) -> None:
        """Make the placement on dimension ``dim``, which is not a shard any more, that of the target."""
        now, then = self.current[dim], self.target[dim]
        if now == then:
            return
        if isinstance(now, Partial):
            if isinstance(then, Shard):
                self._reduce_scatter(dim, now, then)
            else:
                self._reduce(dim, now)
            now = self.current[dim]
        if isinstance(then, Shard) and now != then:
            self._chunk(dim, then)
        elif isinstance(then, Partial):
            self._divide(dim, then)

    # --- the steps ---

    def _place_of(self, dim: int) -> tuple[int, int]:
        """The number of ranks along ``dim``, and the position of this one."""
        return self.mesh.size(dim), self.mesh.get_local_rank(dim)

    def _axis_size(self, dim: int, axis: int) -> int:
        """The size of ``axis`` before dimension ``dim`` splits it."""
        size = self.shape[axis]
        for e in _outer(dim, axis, self.current, self.order):
            size = chunk_of(size, self.mesh.size(e), self.mesh.get_local_rank(e))[1]
        return size

    def _call(self, step: str) -> str:
        return f"{step} of a DTensor of {list(self.shape)} ({self.name})"

    def _gather(self, dim: int, axis: int) -> None:
        count, _ = self._place_of(dim)
        size = self._axis_size(dim, axis)
        if count > 1:
            part = _padded(self.local, axis, -(-size // count))
            rows = self.mesh.get_group(dim).all_gather(part, name=self._call("all-gather")).wait()
            self.local = _cut(_merged(rows, axis), axis, size)
        self.current[dim] = Replicate()

    def _exchange(self, dim: int, axis: int, then: Shard) -> None:
        other = then.dim
        count, index = self._place_of(dim)
        if count > 1:
            size, wide = self._axis_size(dim, axis), self._axis_size(dim, other)
            part = _padded(self.local, axis, -(-size // count))
            rows = rows_of(part, other, count)
            rows = self.mesh.get_group(dim).all_to_all(rows, name=self._call("all-to-all")).wait()
            merged = _cut(_merged(rows, axis), axis, size)
            self.local = _cut(merged, other, chunk_of(wide, count, index)[1])
        self.current[dim] = then

    def _reduce(self, dim: int, partial: Partial) -> None:
        count, _ = self._place_of(dim)
        if count > 1:
            group = self.mesh.get_group(dim)
            reduced = group.all_reduce(self.local, partial.operation, name=self._call("all-reduce")).wait()
            self.local = reduced.reshape(self.local.shape)
        self.current[dim] = Replicate()

    def _reduce_scatter(self, dim: int, partial: Partial, then: Shard) -> None:
        axis = then.dim
        count, index = self._place_of(dim)
        if count > 1:
            size = self._axis_size(dim, axis)
            rows = rows_of(self.local, axis, count)
            group = self.mesh.get_group(dim)
            part = group.reduce_scatter(rows, partial.operation, name=self._call("reduce-scatter")).wait()
            self.local = _cut(part, axis, chunk_of(size, count, index)[1])
        self.current[dim] = then

    def _chunk(self, dim: int, then: Shard) -> None:
        axis = then.dim
        count, index = self._place_of(dim)
        if count > 1:
            start, size = chunk_of(self.local.shape[axis], count, index)
            self.local = self.local[(slice(None),) * axis + (slice(start, start + size),)].copy()
        self.current[dim] = then

    def _divide(self, dim: int, partial: Partial) -> None:
        """Make partial results of a whole array: rank 0 keeps it, others take what changes nothing."""
        _, index = self._place_of(dim)
        if index and partial.reduce_op == "sum":
            self.local = np.zeros_like(self.local)
        elif index and partial.reduce_op == "product":
            self.local = np.ones_like(self.local)
        self.current[dim] = partial


def _outer(dim: int, axis: int, placements: Sequence[Placement], order: Sequence[int]) -> list[int]:
    """The mesh dimensions that split ``axis`` before ``dim`` does."""
    result = []
    for e in order:
        if e == dim:
            break
        placement = placements[e]
        if isinstance(placement, Shard) and placement.dim == axis:
            result.append(e)
    return result


def _padded(part: Local, axis: int, size: int) -> Local:
    """``part`` with zeros after it, so that ``axis`` has ``size``."""
    missing = size - part.shape[axis]
    if not missing:
        return np.ascontiguousarray(part).reshape(part.shape)
    widths = [(0, 0)] * part.ndim
    widths[axis] = (0, missing)
    return np.pad(part, widths)


def rows_of(part: Local, axis: int, count: int) -> Local:
    """``part`` as ``count`` rows, the equal chunks of ``axis``."""
    chunk = -(-part.shape[axis] // count)
    whole = _padded(part, axis, chunk * count)
    split = whole.reshape(*whole.shape[:axis], count, chunk, *whole.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(split, axis, 0))


def _merged(rows: Local, axis: int) -> Local:
    """The rows joined along ``axis``, contiguous also where a row has one element there."""
    moved = np.moveaxis(rows, 0, axis)
    size = moved.shape[axis] * moved.shape[axis + 1]
    return np.ascontiguousarray(moved.reshape(*moved.shape[:axis], size, *moved.shape[axis + 2 :]))


def _cut(array: Local, axis: int, size: int) -> Local:
    return (
        array
        if array.shape[axis] == size
        else np.ascontiguousarray(array[(slice(None),) * axis + (slice(size),)])
    )


def check_convertible(source: Placements, target: Placements) -> None:
    """Raise ``UnsupportedError`` if partial results of one reduction would have to become another's."""
    for now, then in zip(source, target, strict=True):
        if isinstance(then, Partial) and isinstance(now, Partial) and now != then:
            raise UnsupportedError(
                f"redistribute from {now!r} to {then!r}: partial results of one reduction cannot become those"
                " of another. Redistribute to Replicate() first."
            )
