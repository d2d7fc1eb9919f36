"""Which part of a tensor a rank has: sizes and offsets of shards, uneven ones as ``chunk`` makes them."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.distributed.tensor.placement_types import Placement, Shard, split_order
from tenon.engine.aval import Shape


def chunk_of(size: int, count: int, index: int) -> tuple[int, int]:
    """The start and the size of chunk ``index`` of an axis of ``size`` that is split over ``count`` ranks.

    >>> [chunk_of(5, 4, i) for i in range(4)]
    [(0, 2), (2, 2), (4, 1), (5, 0)]
    """
    full = -(-size // count)
    start = min(full * index, size)
    return start, min(full, size - start)


def local_part(
    shape: Sequence[int], placements: Sequence[Placement], sizes: Sequence[int], coordinate: Sequence[int]
) -> tuple[Shape, Shape]:
    """The shape and the offset of the part at ``coordinate`` of a mesh of ``sizes``.

    An axis that several mesh dimensions split is split in ``split_order``: the second splits the chunk of the
    first.
    """
    local, offset = list(shape), [0] * len(shape)
    for dim in split_order(placements):
        placement = placements[dim]
        if isinstance(placement, Shard):
            start, size = chunk_of(local[placement.dim], sizes[dim], coordinate[dim])
            offset[placement.dim] += start
            local[placement.dim] = size
    return tuple(local), tuple(offset)
