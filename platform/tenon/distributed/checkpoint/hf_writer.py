"""Save models as they are published: whole tensors in safetensors files, and an index of them.

The coordinator lays out the files and writes their headers; then every rank writes its parts of the tensors
where they belong. Nothing is gathered.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tenon.distributed.checkpoint.folders import InFolder, need_one_folder
from tenon.distributed.checkpoint.metadata import Metadata, StorageMeta
from tenon.distributed.checkpoint.planner import SavePlan, SavePlanner, TensorWriteData, WriteItem
from tenon.distributed.checkpoint.storage import StorageWriter, WriteResult
from tenon.distributed.communication.futures import Future
from tenon.engine.aval import contiguous_strides
from tenon.errors import CheckpointError
from tenon.serialize.atomic import ABANDONED_AFTER, remove_abandoned, replacing
from tenon.serialize.tensor_arrays import NAMES
from tenon.tensors.tensor import Tensor

#: The index of a model's files, and what the names of unfinished files begin with.
INDEX, _UNFINISHED = "model.safetensors.index.json", ".model-"
#: Where a tensor begins: its file, and the byte in it.
_Place = tuple[str, int]


class HuggingFaceStorageWriter(InFolder, StorageWriter):
    """Writes flat dicts of tensors, such as ``model.state_dict()``, into safetensors files of ``path``.

    ``fqn_to_index_mapping`` says which file each tensor is in, from 1 on; there is one file without it. Files
    take their names when all are complete, and the index is the last. ``save_distributed``,
    ``enable_consolidation``, ``thread_count`` and ``thread_count_consolidation`` have no effect: files have
    whole tensors in any case.

    Source: torch.distributed.checkpoint.HuggingFaceStorageWriter.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fqn_to_index_mapping: dict[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        thread_count_consolidation: int = 1,
    ) -> None:
        self.path, self.fqn_to_index_mapping = Path(path), fqn_to_index_mapping
        self.save_id = ""
        """The name of the save, a new one each time."""
        self._files: dict[str, list[str]] = {}
        """The tensors of each file, on the coordinator."""

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A new checkpoint begins, in the folder ``checkpoint_id`` if that is given."""
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)
        self.save_id = secrets.token_hex(8)

    def set_up_storage_writer(self, is_coordinator: bool, *args: object, **kwargs: object) -> None:
        """Begin on this rank."""
        if not self.save_id:
            self.reset()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Create the folder. CheckpointError for values that are no tensors."""
        others = [item.index.fqn for item in plan.items if item.tensor_data is None]
        if others:
            raise CheckpointError(
                f"safetensors files of models have tensors only, not {', '.join(others[:5])}. Save"
                " model.state_dict(), or use FileSystemWriter."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        return SavePlan(plan.items, os.path.realpath(self.path), plan.planner_data)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Create the files, with their headers, and tell each rank where its tensors begin.

        CheckpointError if the ranks save to different folders.
        """
        need_one_folder(plans)
        tensors = {item.index.fqn: _data_of(item) for plan in plans for item in plan.items}
        self._files = self._divided(tensors)
        places: dict[str, _Place] = {}
        for name, keys in self._files.items():
            unfinished = f"{_UNFINISHED}{self.save_id}-{name}"
            with open(self.path / unfinished, "wb") as file:
                begins = _begin(file, {key: tensors[key] for key in keys})
            places.update({key: (unfinished, begin) for key, begin in begins.items()})
        return [
            SavePlan(
                plan.items, {i.index.fqn: list(places[i.index.fqn]) for i in plan.items}, plan.planner_data
            )
            for plan in plans
        ]

    def _divided(self, tensors: Mapping[str, TensorWriteData]) -> dict[str, list[str]]:
        """The names of the files, and of the tensors in each."""
        index_of = self.fqn_to_index_mapping
        if index_of is None:
            index_of = dict.fromkeys(tensors, 1)
        missing = [key for key in tensors if key not in index_of]
        if missing:
            raise CheckpointError(
                f"fqn_to_index_mapping has no file for {', '.join(missing[:5])}. Give every tensor a number."
            )
        count = max(index_of.values(), default=1)
        files: dict[str, list[str]] = {}
        for key in sorted(tensors, key=lambda key: (index_of[key], key)):
            name = f"model-{index_of[key]:05d}-of-{count:05d}.safetensors"
            files.setdefault(name, []).append(key)
        return files

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's parts of tensors into the files."""
        by_file: dict[str, list[WriteItem]] = {}
        for item in plan.items:
            by_file.setdefault(plan.storage_data[item.index.fqn][0], []).append(item)
        results = []
        for name, items in by_file.items():
            with open(self.path / name, "r+b") as file:
                for item in items:
                    written = _write(file, plan.storage_data[item.index.fqn][1], item, planner)
                    results.append(WriteResult(item.index, written, name))
                file.flush()
                os.fsync(file.fileno())
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Give the files their names, write the index, and remove the files of a former model."""
        for name in self._files:
            os.replace(self.path / f"{_UNFINISHED}{self.save_id}-{name}", self.path / name)
        total = sum(result.size_in_bytes for of_rank in results for result in of_rank)
        weights = {key: name for name, keys in self._files.items() for key in keys}
        with replacing(self.path / INDEX) as file:
            file.write(
                json.dumps({"metadata": {"total_size": total}, "weight_map": weights}, indent=2).encode()
            )
        for path in self.path.glob("model-?????-of-?????.safetensors"):
            if path.name not in self._files:
                path.unlink()
        remove_abandoned(self.path, _UNFINISHED, ABANDONED_AFTER)
        metadata.storage_meta = self.storage_meta()

    def storage_meta(self) -> StorageMeta | None:
        """The folder, and the name of the save."""
        return StorageMeta(os.fspath(self.path), self.save_id)


def _data_of(item: WriteItem) -> TensorWriteData:
    assert item.tensor_data is not None  # ``prepare_local_plan`` has refused others
    return item.tensor_data


def _begin(file: BinaryIO, tensors: Mapping[str, TensorWriteData]) -> dict[str, int]:
    """Write a header, and make the file as long as it will be; return where each tensor begins."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # JSON
    begins, position = {}, 0
    order = sorted(tensors, key=lambda key: (-tensors[key].properties.dtype.itemsize, key))  # aligned
    for key in order:
        kind, shape = tensors[key].properties.dtype, list(tensors[key].size)
        if kind.name not in NAMES:
            raise CheckpointError(f"{key}: safetensors files have no {kind}. Convert the tensor.")
        end = position + math.prod(shape) * kind.itemsize
        header[key] = {"dtype": NAMES[kind.name], "shape": shape, "data_offsets": [position, end]}
        begins[key], position = position, end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    start = 8 + len(text)
    file.truncate(start + position)
    return {key: start + begin for key, begin in begins.items()}


def _write(file: BinaryIO, begin: int, item: WriteItem, planner: SavePlanner) -> int:
    """Write the data of ``item``, a box of the tensor that begins at byte ``begin``; return its bytes."""
    data, value = _data_of(item), planner.resolve_data(item)
    if not isinstance(value, Tensor) or tuple(value.shape) != tuple(data.chunk.sizes):
        raise CheckpointError(f"{item.index.fqn}: the planner gave other data than it had planned.")
    array = np.ascontiguousarray(value.detach().cpu().raw)
    memory, done = array.reshape(-1).view(np.uint8).data, 0
    for start, count in _runs(data.size, data.chunk.offsets, data.chunk.sizes):
        file.seek(begin + start * array.itemsize)
        file.write(memory[done : done + count * array.itemsize])
        done += count * array.itemsize
    return array.nbytes


def _runs(shape: Sequence[int], offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The beginnings and lengths, in elements, of the pieces of a box that are contiguous in the whole."""
    whole = len(shape)
    while whole and sizes[whole - 1] == shape[whole - 1]:
        whole -= 1
    split = max(whole - 1, 0)  # axes after it are whole
    strides, length = contiguous_strides(tuple(shape)), math.prod(sizes[split:])
    if not length:
        return
    for index in np.ndindex(*sizes[:split]):
        leading = sum((o + i) * s for o, i, s in zip(offsets[:split], index, strides[:split], strict=True))
        inner = offsets[split] * strides[split] if shape else 0
        yield leading + inner, length
