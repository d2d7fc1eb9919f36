"""The items of plans, of tensors, DTensors and other values. Names are PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon.distributed.checkpoint.chunks import intersection, overlapping
from tenon.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlanner,
    ReadItem,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from tenon.distributed.tensor.dtensor import DTensor
from tenon.distributed.tensor.placement_types import Partial
from tenon.errors import ArgumentError, CheckpointError
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

__all__ = ["create_read_items_for_chunk_list", "find_state_dict_object", "find_tensor_shard"]


def is_here(value: object) -> bool:
    """Whether this rank has a part of ``value``: of a DTensor only ranks of its mesh have."""
    return not isinstance(value, DTensor) or value.device_mesh.get_coordinate() is not None


def create_write_items(fqn: str, value: object) -> list[WriteItem]:
    """The items that save ``value`` as ``fqn``; a tensor subclass may define ``__create_write_items__``."""
    create: Any = getattr(value, "__create_write_items__", None)  # a method of the user's
    if create is not None:
        items: list[WriteItem] = create(fqn, value)
        return items
    if not isinstance(value, Tensor):
        return [WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)]
    kind = WriteItemType.SHARD if isinstance(value, DTensor) else WriteItemType.TENSOR
    if isinstance(value, DTensor) and any(isinstance(p, Partial) for p in value.placements):
        raise ArgumentError(
            f"{fqn} is a DTensor of placements {value.placements}, of which each rank has a partial result."
            " redistribute() it to Replicate() or Shard() before it is saved."
        )
    return [
        WriteItem(
            MetadataIndex(fqn, chunk.offsets),
            kind,
            tensor_data=TensorWriteData(chunk, TensorProperties.create_from_tensor(value), Size(value.shape)),
        )
        for chunk in create_chunk_list(value)
        if 0 not in chunk.sizes or 0 in value.shape  # an empty part begins where another rank's does
    ]


def create_chunk_list(tensor: object) -> list[ChunkStorageMetadata]:
    """The boxes of ``tensor`` that this rank has; a subclass may define ``__create_chunk_list__``."""
    create: Any = getattr(tensor, "__create_chunk_list__", None)  # a method of the user's
    if create is not None:
        return [_chunk(chunk) for chunk in create()]
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"a {type(tensor).__name__} has no chunks. Pass a tensor.")
    return [ChunkStorageMetadata(Size([0] * tensor.ndim), Size(tensor.shape))]


def _chunk(chunk: Any) -> ChunkStorageMetadata:  # one, or ``(offsets, sizes)``
    return chunk if isinstance(chunk, ChunkStorageMetadata) else ChunkStorageMetadata(*map(Size, chunk))


def create_read_items(fqn: str, md: STORAGE_TYPES, value: object) -> list[ReadItem]:
    """The items that read ``fqn``, saved as ``md``, into ``value``."""
    if isinstance(md, BytesStorageMetadata):
        index = MetadataIndex(fqn)
        return [ReadItem(LoadItemType.BYTE_IO, index, Size([0]), index, Size([0]), Size([0]))]
    if not isinstance(value, Tensor) and not hasattr(value, "__create_chunk_list__"):
        raise CheckpointError(
            f"{fqn} is a tensor of {list(md.size)} in the checkpoint and a {type(value).__name__} in the"
            " state dict. Put a tensor of that shape in its place."
        )
    return create_read_items_for_chunk_list(fqn, md, create_chunk_list(value))


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: Sequence[ChunkStorageMetadata]
) -> list[ReadItem]:
    """The items that fill ``local_chunks`` of ``fqn`` from the chunks of a checkpoint."""
    items = []
    saved = checkpoint_md.chunks
    for own, other in overlapping(local_chunks, saved):
        common = intersection(local_chunks[own], saved[other])
        if common is not None:
            destination = MetadataIndex(fqn, local_chunks[own].offsets, own)
            source = MetadataIndex(fqn, saved[other].offsets, other)
            items.append(ReadItem(LoadItemType.TENSOR, destination, common[0], source, common[1], common[2]))
    return items


def narrowed(tensor: Tensor, offsets: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """The box of ``lengths`` that begins at ``offsets``, as a view without history."""
    part = tensor.detach()
    for axis, (start, length) in enumerate(zip(offsets, lengths, strict=True)):
        part = part.narrow(axis, start, length)
    return part


def find_tensor_shard(tensor: Tensor, index: MetadataIndex) -> Tensor:
    """This rank's part of ``tensor`` that begins at ``index.offset``; a subclass may define
    ``__get_tensor_shard__``. Shares memory with it."""
    get: Any = getattr(tensor, "__get_tensor_shard__", None)  # a method of the user's
    if get is not None:
        part: Tensor = get(index)
        return part
    if isinstance(tensor, DTensor):
        return tensor.detach().to_local()
    if index.offset is not None and any(index.offset):
        raise ArgumentError(f"{index.fqn} is a whole tensor: it has no part at {list(index.offset)}.")
    return tensor


def find_state_dict_object(state_dict: Mapping[str, object], index: MetadataIndex) -> Any:  # of any type
    """The value of a flat state dict that ``index`` names, of a tensor this rank's part."""
    if index.fqn not in state_dict:
        raise ArgumentError(f"Could not find FQN: {index.fqn!r} in the state dict.")
    value = state_dict[index.fqn]
    if isinstance(value, Tensor):
        return find_tensor_shard(value, index)
    if index.offset is not None:
        raise ArgumentError(
            f"FQN: {index.fqn!r} is not a ShardedTensor or DTensor but a {type(value).__name__}, of which"
            " there are no parts."
        )
    return value


def deliver(item: ReadItem, tensor: Tensor, planner: LoadPlanner) -> None:
    """Put a chunk, or the part of it that ``item`` wants, where the planner says."""
    if item.type is LoadItemType.BYTE_IO:
        data = planner.resolve_bytes(item)
        data.write(np.asarray(tensor.raw).tobytes())
        data.seek(0)
        planner.load_bytes(item, data)
        return
    part = narrowed(tensor, item.storage_offsets, item.lengths)
    target = planner.resolve_tensor(item)
    if tuple(target.shape) != tuple(item.lengths):
        raise CheckpointError(
            f"{item.dest_index.fqn}: the planner gave a tensor of {list(target.shape)} for a box of"
            f" {list(item.lengths)}."
        )
    with no_grad():
        target.detach().copy_(part)
    planner.commit_tensor(item, target)
