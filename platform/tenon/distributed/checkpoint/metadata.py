"""What a distributed checkpoint has: tensors in chunks, and other values as bytes. Names are PyTorch's.

A tensor of the checkpoint has the shape of the whole; each rank that has a part of it writes a chunk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tenon.dtypes import dtype, float32
from tenon.tensors.layout import layout, strided
from tenon.tensors.memory_formats import contiguous_format, memory_format
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

__all__ = [
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "Metadata",
    "MetadataIndex",
    "StorageMeta",
    "TensorProperties",
    "TensorStorageMetadata",
]

#: Tensors, containers and objects with a state, by name.
STATE_DICT_TYPE: TypeAlias = dict[str, Any]


@dataclass
class ChunkStorageMetadata:
    """A box of a tensor: where it begins on each axis, and its shape."""

    offsets: Size
    sizes: Size


@dataclass
class TensorProperties:
    """The properties of a tensor besides its shape."""

    dtype: dtype = float32
    layout: layout = strided
    requires_grad: bool = False
    memory_format: memory_format = contiguous_format
    pin_memory: bool = False

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        """The properties of ``tensor``."""
        return TensorProperties(tensor.dtype, strided, tensor.requires_grad)


@dataclass
class TensorStorageMetadata:
    """A tensor: ``size`` is the shape of the whole, ``chunks`` are the boxes that were saved."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """A value that is no tensor, saved as bytes."""


#: What the metadata describes.
STORAGE_TYPES: TypeAlias = TensorStorageMetadata | BytesStorageMetadata


@dataclass
class StorageMeta:
    """What a storage says of a save to the planner."""

    checkpoint_id: str | os.PathLike[str] | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """The description of a checkpoint. Planner and storage add data of their own."""

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None  # the planner's
    storage_data: Any = None  # the storage's
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True, init=False)
class MetadataIndex:
    """The name of a value, and for a chunk of a tensor where it begins.

    ``index`` is the position of the chunk among those of its tensor, a hint that is not compared.
    """

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "offset", None if offset is None else Size(offset))
        object.__setattr__(self, "index", index)


#: Where the nested value of a flattened name is: keys of dicts, and positions in lists.
Path: TypeAlias = tuple[str | int, ...]
#: Flattened name -> path.
Paths: TypeAlias = Mapping[str, Path]
