"""Convert distributed checkpoints to one file, which ``tenon.load`` and PyTorch read, and back.

As a command: ``python -m tenon.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE``, and
``torch_to_dcp FILE FOLDER``.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import click

from tenon import serialize
from tenon.distributed.checkpoint.default_planner import DefaultLoadPlanner, check_size
from tenon.distributed.checkpoint.flattening import flatten_state_dict
from tenon.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from tenon.distributed.checkpoint.planner_helpers import narrowed
from tenon.distributed.checkpoint.sending import send
from tenon.distributed.checkpoint.state_dict_loader import load_whole
from tenon.distributed.checkpoint.state_dict_saver import save
from tenon.distributed.checkpoint.storage import StorageReader
from tenon.distributed.communication import objects, world
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.futures import Future
from tenon.errors import ArgumentError, CheckpointError, TenonError
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(
    dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]
) -> None:
    """Write the checkpoint in a folder to one file, ``.safetensors`` or ``.pt``, of whole tensors.

    Not collective: one process reads all of it into memory. Source:
    torch.distributed.checkpoint.format_utils.
    """
    serialize.save(load_whole(checkpoint_id=dcp_checkpoint_dir), torch_save_path)


def torch_save_to_dcp(
    torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]
) -> None:
    """Write the state dict in a file of ``tenon.save``, ``torch.save`` or safetensors as a checkpoint in a
    folder. Not collective. Raises CheckpointError if the file is not a dict."""
    save(_state_dict(torch_save_path), checkpoint_id=dcp_checkpoint_dir, no_dist=True)


def _state_dict(path: str | os.PathLike[str]) -> STATE_DICT_TYPE:
    loaded = serialize.load(path, map_location="cpu")
    if not isinstance(loaded, dict):
        raise CheckpointError(
            f"{os.fspath(path)!r} holds a {type(loaded).__name__}. Save a dict, as {{'model': ...}}, to"
            " convert."
        )
    return loaded


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of ``tenon.save`` or ``torch.save`` on the coordinator, which sends whole tensors to the
    other ranks; each keeps its part. Pass it to ``load`` with a ``DynamicMetaLoadPlanner``."""

    def __init__(
        self, checkpoint_id: str | os.PathLike[str] | None = None, coordinator_rank: int = 0
    ) -> None:
        self.checkpoint_id, self.coordinator_rank = checkpoint_id, coordinator_rank
        self._loaded: STATE_DICT_TYPE = {}
        self._sizes: dict[str, tuple[int, ...]] = {}
        self.is_coordinator = False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A file is about to be read."""
        if checkpoint_id is not None:
            self.checkpoint_id = checkpoint_id

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        """Nothing: the planner makes it from the state dict."""
        return Metadata({})

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: object, **kwargs: object
    ) -> None:
        """Read the file, on the coordinator."""
        self.is_coordinator = is_coordinator
        if self.checkpoint_id is None:
            raise ArgumentError("BroadcastingTorchSaveReader: pass checkpoint_id=, the path of the file.")
        self._sizes = {
            name: tuple(described.size)
            for name, described in metadata.state_dict_metadata.items()
            if isinstance(described, TensorStorageMetadata)
        }
        if is_coordinator:
            self._loaded = flatten_state_dict(_state_dict(self.checkpoint_id))[0]

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are."""
        return plans

    def check_data(self, plan: LoadPlan) -> None:
        """Raise on the coordinator if the file lacks a value, or has a tensor of another shape."""
        for item in plan.items if self.is_coordinator else []:
            name = item.dest_index.fqn
            found = self._loaded.get(name)
            if name not in self._loaded or isinstance(found, Tensor) is (item.type is LoadItemType.BYTE_IO):
                raise CheckpointError(f"{self.checkpoint_id!r} has no tensor {name!r}. Load what it has.")
            whole = self._sizes.get(name)
            if isinstance(found, Tensor) and whole is not None:
                check_size(name, found.shape, whole)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Broadcast what any rank needs, one value at a time, and copy this rank's part."""
        communicator = world.get_communicator()
        items: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            items.setdefault(item.dest_index.fqn, []).append(item)
        wanted = communicator.all_gather_bytes(objects.encode(list(items)), name="checkpoint: names")
        for name in sorted({name for names in wanted for name in objects.decode(names)}):
            value = self._receive(communicator, name)
            for item in items.get(name, []):
                _deliver(item, value, planner)
        self._loaded = {}
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _receive(self, communicator: Communicator, name: str) -> Tensor | bytes:
        """The coordinator's tensor called ``name``; of another value, what ``tenon.save`` writes of it."""
        value = self._loaded.get(name)
        if self.is_coordinator and not isinstance(value, Tensor):
            data = io.BytesIO()
            serialize.save(value, data)
            value = data.getvalue()
        received: Tensor | bytes = send(communicator, value, name, self.coordinator_rank)
        return received

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether there is a file."""
        return Path(checkpoint_id).is_file()


def _deliver(item: ReadItem, value: Tensor | bytes, planner: LoadPlanner) -> None:
    if isinstance(value, bytes):
        planner.load_bytes(item, io.BytesIO(value))
        return
    target = planner.resolve_tensor(item)
    with no_grad():
        target.detach().copy_(narrowed(value, item.storage_offsets, item.lengths))
    planner.commit_tensor(item, target)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Takes the shapes of the checkpoint to be those of the state dict, for readers that know none."""

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Describe the values of ``state_dict`` in ``metadata``, each tensor as one chunk."""
        super().set_up_planner(state_dict, metadata, is_coordinator)
        described: dict[str, STORAGE_TYPES] = {}
        for name, value in self.state_dict.items():
            if not isinstance(value, Tensor):
                described[name] = BytesStorageMetadata()
                continue
            size = Size(value.shape)
            chunk = ChunkStorageMetadata(Size([0] * len(size)), size)
            properties = TensorProperties.create_from_tensor(value)
            described[name] = TensorStorageMetadata(properties, size, [chunk])
        self.metadata = Metadata(described)
        if metadata is not None:
            metadata.state_dict_metadata.update(described)


@click.command()
@click.argument("mode", type=click.Choice(["dcp_to_torch", "torch_to_dcp"]))
@click.argument("src")
@click.argument("dst")
def main(mode: str, src: str, dst: str) -> None:
    """Convert SRC to DST: the checkpoint in a folder to one file, or a file to a checkpoint in a folder."""
    convert = dcp_to_torch_save if mode == "dcp_to_torch" else torch_save_to_dcp
    try:
        convert(src, dst)
    except (TenonError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
