"""Which part of a tensor a rank has: sizes and offsets of shards, uneven ones as ``chunk`` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon.distributed.tensor.placement_types import Placement, Shard, split_order
from tenon.engine.aval import Shape

if TYPE_CHECKING:
    from tenon.distributed.device_mesh import DeviceMesh


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


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int],
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    skip_offset: bool = False,
) -> tuple[Shape, Shape]:
    """The shape and the offset of this rank's part; an axis of which it has nothing begins at its end.

    With ``skip_offset``, and outside of the mesh, the offset is empty.
    Source: torch.distributed.tensor._utils.

    >>> from tenon.distributed import init_device_mesh
    >>> compute_local_shape_and_global_offset((4, 3), init_device_mesh("cpu", (1,)), [Shard(0)])
    ((4, 3), (0, 0))
    """
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,), ()
    shape, offset = local_part(global_shape, placements, mesh.shape, coordinate)
    if skip_offset:
        return shape, ()
    axes = zip(shape, offset, global_shape, strict=True)
    return shape, tuple(start if size else whole for size, start, whole in axes)
