"""Where checkpoints are kept: ``StorageWriter`` and ``StorageReader``, PyTorch's protocol.

``filesystem.py`` keeps them in folders. A storage of your own implements these methods.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tenon.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from tenon.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from tenon.distributed.communication.futures import Future

__all__ = ["StorageReader", "StorageWriter", "WriteResult"]


@dataclass(frozen=True)
class WriteResult:
    """What has been written of an item: its size, and where the storage put it."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any  # the storage's


class StorageWriter(ABC):
    """Writes checkpoints. ``save`` calls the methods in this order; the coordinator is one of the ranks."""

    @abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A new checkpoint begins, at ``checkpoint_id`` if the caller gave one."""

    @abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: object, **kwargs: object) -> None:
        """Begin on this rank. A writer that takes ``**kwargs`` gets ``rank`` and ``use_collectives``."""

    @abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Add what the storage needs to this rank's plan."""

    @abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Add what the storage needs to the plans of all ranks; called on the coordinator."""

    @abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the items of the plan, with the data that ``planner.resolve_data`` returns."""

    @abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make the checkpoint valid, after all ranks have written; called on the coordinator."""

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this storage keeps checkpoints under such names."""

    def storage_meta(self) -> StorageMeta | None:
        """What the planner is told of the storage."""
        return None


class StorageReader(ABC):
    """Reads checkpoints. ``load`` calls the methods in this order; the coordinator is one of the ranks."""

    @abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A checkpoint is about to be read, at ``checkpoint_id`` if the caller gave one."""

    @abstractmethod
    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        """The description of the checkpoint."""

    @abstractmethod
    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: object, **kwargs: object
    ) -> None:
        """Begin on this rank. A reader that takes ``**kwargs`` gets ``rank`` and ``use_collectives``."""

    @abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Add what the storage needs to this rank's plan."""

    @abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Add what the storage needs to the plans of all ranks; called on the coordinator."""

    def check_data(self, plan: LoadPlan) -> None:
        """Raise if an item of the plan cannot be read. ``read_data`` follows only if no rank has raised, so
        that nothing is half loaded. By default nothing is checked. (PyTorch has no such method.)"""
        return

    @abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the items of the plan into the tensors that ``planner.resolve_tensor`` returns."""

    def close(self) -> None:
        """Loading is over, or has failed: let go of files. (PyTorch has no such method.)"""
        return

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this storage keeps checkpoints under such names."""
