"""Checkpoints in folders: a safetensors file per rank and ``manifest.json``. Names are PyTorch's.

The manifest is written when all files are complete, by a rename, so a folder always has the last complete
checkpoint or none: what a killed save has left is removed by the next one. Nothing in a file is ever run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np

from tenon.distributed.checkpoint import manifest
from tenon.distributed.checkpoint.chunks import shown
from tenon.distributed.checkpoint.folders import InFolder, is_path, need_one_folder
from tenon.distributed.checkpoint.manifest import ShardFile, StorageData, Stored
from tenon.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from tenon.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from tenon.distributed.checkpoint.planner_helpers import deliver
from tenon.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from tenon.distributed.communication.futures import Future
from tenon.errors import ArgumentError, CheckpointError, CheckpointWriteError
from tenon.serialize.atomic import ABANDONED_AFTER, remove_abandoned, replacing
from tenon.serialize.regular_files import open_regular
from tenon.serialize.tensor_file import TensorFile
from tenon.serialize.tensors import Packed
from tenon.tensors.creation.create import from_numpy
from tenon.tensors.tensor import Tensor

__all__ = ["FileSystemReader", "FileSystemWriter"]


class FileSystemWriter(InFolder, StorageWriter):
    """Writes checkpoints into the folder ``path``; every rank must see it.

    With ``overwrite=False`` a folder that has a checkpoint is refused.

    ``single_file_per_rank``, ``sync_files``, ``thread_count``, ``per_thread_copy_ahead`` and
    ``cache_staged_state_dict`` have no effect: a rank always writes one file and syncs it to the disk.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
    ) -> None:
        self.path = Path(path)
        self.overwrite = overwrite
        self.is_coordinator = False
        self.save_id = ""
        """The name of the save, a new one each time."""

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A new checkpoint begins, in the folder ``checkpoint_id`` if that is given."""
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)
        self.save_id = secrets.token_hex(8)

    def set_up_storage_writer(self, is_coordinator: bool, *args: object, **kwargs: object) -> None:
        """Begin on this rank."""
        self.is_coordinator = is_coordinator
        if not self.save_id:
            self.reset()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Create the folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.overwrite and (self.path / manifest.NAME).exists():
            raise CheckpointError(
                f"Checkpoint already exists in {os.fspath(self.path)!r}, and overwrite=False was given. Save"
                " to another folder."
            )
        return SavePlan(plan.items, os.path.realpath(self.path), plan.planner_data)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Name the file of each rank. CheckpointError if they save to different folders."""
        need_one_folder(plans)
        count = len(plans)
        return [
            SavePlan(
                plan.items, f"shard-{self.save_id}-{rank:05d}-of-{count:05d}.safetensors", plan.planner_data
            )
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's file, atomically; a rank that has nothing to write writes none."""
        done: Future[list[WriteResult]] = Future()
        done.set_result(self._write(plan, planner) if plan.items else [])
        return done

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        tensors: dict[str, Tensor] = {}
        keys = []
        for item in plan.items:
            tensor = _as_tensor(item, planner)
            key = unique = _key(item)
            number = 1
            while unique in tensors:
                number += 1
                unique = f"{key}#{number}"
            tensors[unique] = tensor
            keys.append(unique)
        packed = Packed(tensors)
        target = self.path / plan.storage_data
        with replacing(target) as file:
            packed.write(file, target.stem)
        written = (plan.storage_data, target.stat().st_size, packed.digest)
        return [
            WriteResult(item.index, tensors[key].nbytes, [*written, key])
            for item, key in zip(plan.items, keys, strict=True)
        ]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the manifest, after which the checkpoint is the folder's, and remove the files of others."""
        data = StorageData({}, {})
        for result in (each for results_of_rank in results for each in results_of_rank):
            name, size, digest, key = result.storage_data
            data.places[result.index] = Stored(name, key)
            data.files[name] = ShardFile(size, digest)
        for name, expected in data.files.items():
            found = _size_of(self.path / name)
            if found != expected.size:
                raise CheckpointWriteError(
                    f"{os.fspath(self.path / name)!r}, which a rank has just written, is"
                    f" {'not there' if found is None else f'{found} bytes long'} for the coordinator, instead"
                    f" of {expected.size} bytes. Save to a folder that all ranks see, and from one job at a"
                    " time."
                )
        metadata.storage_data = data
        metadata.storage_meta = self.storage_meta()
        text = manifest.to_text(metadata, data)
        with replacing(self.path / manifest.NAME) as file:
            file.write(text.encode())
        self._remove_others(data)

    def _remove_others(self, data: StorageData) -> None:
        """Remove the files of former checkpoints and of saves that were killed."""
        for name in os.listdir(self.path):
            if manifest.SHARD.fullmatch(name) and name not in data.files:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path / name)
        remove_abandoned(self.path, ".shard-", ABANDONED_AFTER)

    def storage_meta(self) -> StorageMeta | None:
        """The folder, and the name of the save."""
        return StorageMeta(checkpoint_id=os.fspath(self.path), save_id=self.save_id)


class FileSystemReader(InFolder, StorageReader):
    """Reads checkpoints from the folder ``path``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.load_id: str | None = None
        """The checksum of the manifest that was read last."""
        self._data = StorageData({}, {})
        self._open: dict[str, tuple[BinaryIO, TensorFile]] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A checkpoint is about to be read, from the folder ``checkpoint_id`` if that is given."""
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)
        self.close()

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        """Read the manifest. CheckpointError if the folder has none, or a damaged one."""
        path = self.path / manifest.NAME
        try:
            with open_regular(path) as file:
                text = file.read().decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"cannot load {os.fspath(path)!r}: it is damaged ({error}).") from error
        except (FileNotFoundError, NotADirectoryError):
            raise CheckpointError(self._absent()) from None
        metadata = manifest.from_text(text, repr(os.fspath(path)))
        self.load_id = hashlib.sha256(text.encode()).hexdigest()
        saves = [
            match[1] for name in metadata.storage_data.files if (match := manifest.SHARD.fullmatch(name))
        ]
        metadata.storage_meta = StorageMeta(os.fspath(self.path), saves[0] if saves else None, self.load_id)
        return metadata

    def _absent(self) -> str:
        """What the folder has instead of a manifest."""
        where = repr(os.fspath(self.path))
        if not self.path.exists():
            return f"there is no checkpoint {where}: no such folder. Check the path."
        if not self.path.is_dir():
            return f"{where} is a file. Load it with tenon.load, or convert it with torch_save_to_dcp."
        if (self.path / ".metadata").exists():
            return (
                f"{where} was saved by PyTorch, whose description of it, .metadata, is a pickle, which could"
                " run any code. Convert it with PyTorch's dcp_to_torch_save and tenon's torch_save_to_dcp."
            )
        if any(manifest.SHARD.fullmatch(name) for name in os.listdir(self.path)):
            return f"{where} has no {manifest.NAME}: the save did not finish. Load an earlier checkpoint."
        return f"{where} has no {manifest.NAME}: it is not a checkpoint."

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: object, **kwargs: object
    ) -> None:
        """Keep the places of the chunks."""
        self._data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are."""
        return plans

    def check_data(self, plan: LoadPlan) -> None:
        """Compare the checksums of all that will be read, and keep the files open."""
        for name in {self._place(item.storage_index).relative_path: None for item in plan.items}:
            self._open_file(name)
        for item in plan.items:
            place = self._place(item.storage_index)
            self._open[place.relative_path][1].check(place.key)

    def _open_file(self, name: str) -> TensorFile:
        if name not in self._open:
            path, expected = self.path / name, self._data.files[name]
            source = repr(os.fspath(path))
            try:
                file = open_regular(path)
            except FileNotFoundError:
                raise CheckpointError(
                    f"{source} is missing: {manifest.NAME} lists it as a part of the checkpoint. Put it back,"
                    " or load an earlier checkpoint. If another job has saved to this folder, load again."
                ) from None
            with contextlib.ExitStack() as closing:
                closing.push(file)
                size = os.fstat(file.fileno()).st_size
                if size != expected.size:
                    raise CheckpointError(
                        f"{source} has {size} bytes instead of {expected.size}: it is torn. Take another copy"
                        " or an earlier checkpoint."
                    )
                found = TensorFile(file, source)
                if found.digest != expected.digest:
                    raise CheckpointError(
                        f"{source} is foreign: its contents are not those that {manifest.NAME} lists under"
                        " this name. Put the file back that was saved with the others."
                    )
                closing.pop_all()
            self._open[name] = file, found
        return self._open[name][1]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy the items of the plan into the planner's tensors."""
        items: dict[Stored, list[ReadItem]] = {}
        for item in plan.items:  # of a chunk one after another, so that it is read once
            items.setdefault(self._place(item.storage_index), []).append(item)
        for place, of_chunk in items.items():
            tensor = self._open_file(place.relative_path).tensor(place.key)
            for item in of_chunk:
                deliver(item, tensor, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _place(self, index: MetadataIndex) -> Stored:
        place = self._data.places.get(index)
        if place is None:
            raise CheckpointError(f"the checkpoint {os.fspath(self.path)!r} has no data of {index.fqn!r}.")
        return place

    def verify(self, number: int = 0, count: int = 1) -> None:
        """Read part ``number`` of ``count`` of the files, without loading them; all if there is one part.

        CheckpointError for a file that is missing, torn or foreign, and for any wrong checksum.
        """
        self._data = self.read_metadata().storage_data
        keys: dict[str, list[str]] = {name: [] for name in sorted(self._data.files)[number::count]}
        for place in self._data.places.values():
            if place.relative_path in keys:
                keys[place.relative_path].append(place.key)
        try:
            for name, own in keys.items():
                file = self._open_file(name)
                for key in own:
                    file.check(key)
        finally:
            self.close()

    def close(self) -> None:
        """Close the files."""
        for file, _ in self._open.values():
            file.close()
        self._open.clear()


S = TypeVar("S", StorageReader, StorageWriter)


def storage_of(
    given: S | None,
    checkpoint_id: str | os.PathLike[str] | None,
    make: Callable[[str | os.PathLike[str]], S],
) -> S:
    """The storage ``given``, or that of files which ``make`` creates, about to begin with ``checkpoint_id``.

    ArgumentError if nothing says where the checkpoint is, or in a way that is not a path.
    """
    if given is None:
        if checkpoint_id is None:
            raise ArgumentError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
        if not is_path(checkpoint_id):
            raise ArgumentError(
                "Cannot detect which StorageReader or StorageWriter to use for"
                f" {os.fspath(checkpoint_id)!r}. Pass a path, or storage_reader= or storage_writer=."
            )
        given = make(checkpoint_id)
    given.reset(checkpoint_id)
    return given


def _as_tensor(item: WriteItem, planner: SavePlanner) -> Tensor:
    """The data of an item on the CPU; bytes as a tensor of uint8."""
    value = planner.resolve_data(item)
    if not isinstance(value, Tensor):
        return from_numpy(np.frombuffer(value.getvalue(), np.uint8).copy())
    if item.type is WriteItemType.BYTE_IO:
        raise CheckpointError(f"{item.index.fqn}: the planner gave a tensor where it had planned bytes.")
    return value.detach().cpu()


def _key(item: WriteItem) -> str:
    """The name of an item in its file: its own, and for a part of a tensor which part it is."""
    data = item.tensor_data
    if data is None or data.chunk.sizes == data.size:
        return item.index.fqn
    return item.index.fqn + shown(data.chunk)


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
