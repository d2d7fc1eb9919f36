"""Plans of saving and loading, and the planners that make them. Names and protocol are PyTorch's.

A planner decides which rank writes what (``SavePlanner``) and which chunks a rank reads (``LoadPlanner``);
a storage (``storage.py``) writes and reads. ``default_planner.py`` has the planners that are used if none is
given; most others derive from these.
"""

from __future__ import annotations

import io
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from tenon.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

__all__ = [
    "BytesIOWriteData",
    "LoadItemType",
    "LoadPlan",
    "LoadPlanner",
    "ReadItem",
    "SavePlan",
    "SavePlanner",
    "TensorWriteData",
    "WriteItem",
    "WriteItemType",
]


class WriteItemType(Enum):
    """What is written: a whole tensor, a part of one, or bytes."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """What is read: a box of a tensor, or bytes."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """The size of bytes to write, if it is known."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """The chunk to write, of a tensor of shape ``size``."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: Size


@dataclass(frozen=True)
class WriteItem:
    """One value, or one chunk of a tensor, that a rank writes."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """The bytes of the whole tensor; None of a value that is no tensor."""
        if self.tensor_data is None:
            return None
        return math.prod(self.tensor_data.size) * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """A box of ``lengths`` to copy from a saved chunk into a tensor of the state dict.

    ``storage_offsets`` is where it begins in the saved chunk ``storage_index``, ``dest_offsets`` where it
    begins in this rank's part ``dest_index``.
    """

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: Size
    storage_index: MetadataIndex
    storage_offsets: Size
    lengths: Size


@dataclass(frozen=True)
class SavePlan:
    """What one rank writes. One that is not ``usable`` stands for that of the last save."""

    items: list[WriteItem]
    storage_data: Any = None  # the storage's
    planner_data: Any = None  # the planner's
    usable: bool = True


@dataclass
class LoadPlan:
    """What one rank reads."""

    items: list[ReadItem]
    storage_data: Any = None  # the storage's
    planner_data: Any = None  # the planner's


class SavePlanner(ABC):
    """Plans a save. The methods are called in this order, those of plans on all ranks but
    ``create_global_plan``.

    What plans carry between ranks is data: numbers, strings, containers, tensors and the classes of this
    module.
    """

    @abstractmethod
    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Begin: keep the state dict, which is not passed again."""

    @abstractmethod
    def create_local_plan(self) -> SavePlan:
        """What this rank could write."""

    @abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """What each rank writes, and the description of the checkpoint; called on the coordinator."""

    @abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Accept this rank's part of the global plan."""

    @abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """The data of an item of the plan, any number of times and from any thread."""


class LoadPlanner(ABC):
    """Plans a load. The methods are called in this order, those of plans on all ranks but
    ``create_global_plan``."""

    @abstractmethod
    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Begin: keep the state dict, which is not passed again."""

    @abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """What this rank reads."""

    @abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """The plans of all ranks, which may be changed; called on the coordinator."""

    @abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Accept this rank's plan."""

    @abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put a value that is no tensor into the state dict."""

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """The buffer that bytes are read into, for storages that fill one; by default a new one."""
        return io.BytesIO()

    @abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The tensor to copy into, of the shape ``read_item.lengths``."""

    @abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Called when the tensor that ``resolve_tensor`` returned has its values."""
