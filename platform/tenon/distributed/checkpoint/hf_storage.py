"""Load models as they are published: folders of safetensors files, with or without an index of them.

Every rank reads the headers, and of each tensor what its part needs one after another. ``hf_writer.py`` saves
such folders.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from tenon.distributed.checkpoint.chunks import problem_of
from tenon.distributed.checkpoint.folders import InFolder
from tenon.distributed.checkpoint.hf_writer import INDEX, HuggingFaceStorageWriter
from tenon.distributed.checkpoint.manifest import Stored
from tenon.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from tenon.distributed.checkpoint.planner_helpers import deliver
from tenon.distributed.checkpoint.storage import StorageReader
from tenon.distributed.communication.futures import Future
from tenon.errors import CheckpointError
from tenon.serialize.placement import Placement
from tenon.serialize.regular_files import open_regular
from tenon.serialize.tensor_arrays import Arrays
from tenon.tensors.size import Size

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]

#: The key under which PyTorch notes which part of a tensor a file has.
_SHARDING = "DCP_SHARDING_INFO"
_Places = dict[MetadataIndex, Stored]


class HuggingFaceStorageReader(InFolder, StorageReader):
    """Reads the safetensors files of the folder ``path``, those in its index if it has one.

    Names are those of the files: load a flat dict of tensors, such as ``model.state_dict()``. Files that
    PyTorch's ``HuggingFaceStorageWriter`` saved from several ranks are joined. Such files have no checksums.
    ``thread_count`` has no effect.

    Source: torch.distributed.checkpoint.HuggingFaceStorageReader.
    """

    def __init__(self, path: str | os.PathLike[str], thread_count: int = 1) -> None:
        self.path, self.thread_count = Path(path), thread_count
        self._places: _Places = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A checkpoint is about to be read, from the folder ``checkpoint_id`` if that is given."""
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        """Read the headers. CheckpointError for a folder without files, and for damaged, repeated or missing
        ones."""
        tensors: dict[str, TensorStorageMetadata] = {}
        places: _Places = {}
        seen = hashlib.sha256()
        for name in self._files():
            with open_regular(self.path / name) as file:
                arrays = Arrays(file, Placement("cpu", repr(os.fspath(self.path / name))))
            seen.update(json.dumps([name, arrays.entries], sort_keys=True).encode())
            offsets = _offsets(arrays)
            for key in arrays.entries:
                _add(tensors, places, arrays, key, name, offsets.get(key))
        for key, stored in tensors.items():
            if problem := problem_of(stored.size, stored.chunks):
                raise CheckpointError(
                    f"{os.fspath(self.path)!r}: {key!r} is not whole: {problem}. Check that the folder has"
                    " all files of the model."
                )
        meta = StorageMeta(os.fspath(self.path), None, seen.hexdigest())
        return Metadata(dict(tensors), storage_data=places, storage_meta=meta)

    def _files(self) -> list[str]:
        index = self.path / INDEX
        if index.exists():
            with open_regular(index) as file:
                try:
                    names = sorted(set(json.loads(file.read())["weight_map"].values()))
                    if any(os.path.basename(name) != name for name in names):
                        raise ValueError(f"files of other folders, {names}")
                    return names
                except (AttributeError, LookupError, TypeError, ValueError) as error:
                    raise CheckpointError(f"{os.fspath(index)!r} is damaged ({error!r:.200}).") from error
        found = sorted(path.name for path in self.path.glob("*.safetensors"))
        if not found:
            raise CheckpointError(f"{os.fspath(self.path)!r} has no safetensors files. Check the path.")
        return found

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: object, **kwargs: object
    ) -> None:
        """Keep the places of the tensors."""
        self._places = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy the items of the plan into the planner's tensors."""
        items: dict[str, dict[str, list[ReadItem]]] = {}
        for item in plan.items:
            place = self._places[item.storage_index]
            items.setdefault(place.relative_path, {}).setdefault(place.key, []).append(item)
        for name, by_key in items.items():
            with open_regular(self.path / name) as file:
                arrays = Arrays(file, Placement("cpu", repr(os.fspath(self.path / name))))
                for key, of_tensor in by_key.items():
                    tensor = arrays.plain(key)
                    for item in of_tensor:
                        deliver(item, tensor, planner)
                    arrays.forget()
        done: Future[None] = Future()
        done.set_result(None)
        return done


def _offsets(arrays: Arrays) -> dict[str, list[int]]:
    """Where the arrays of a file begin in their tensors, if PyTorch has noted it."""
    metadata: Any = arrays.metadata  # JSON
    if not isinstance(metadata, dict) or _SHARDING not in metadata:
        return {}
    try:
        notes = json.loads(metadata[_SHARDING])
        found = {key: [int(n) for n in notes[key]["saved_offsets"]] for key in arrays.entries}
        if any(len(found[key]) != len(entry["shape"]) for key, entry in arrays.entries.items()):
            raise ValueError("offsets of other axes than the arrays have")
        return found
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{arrays.source} has damaged {_SHARDING} ({error!r:.200}).") from error


def _add(
    tensors: dict[str, TensorStorageMetadata],
    places: _Places,
    arrays: Arrays,
    key: str,
    name: str,
    offset: list[int] | None,
) -> None:
    """Note the array ``key`` of file ``name``, which is a whole tensor without ``offset``."""
    shape = arrays.entries[key]["shape"]
    begins = [0] * len(shape) if offset is None else offset
    index = MetadataIndex(key, begins)
    if index in places:
        raise CheckpointError(
            f"{arrays.source} and {places[index].relative_path!r} both have {key!r}. Keep one of them in the"
            f" folder, or a {INDEX} that lists the files to read."
        )
    places[index] = Stored(name, key)
    ends = [start + size for start, size in zip(begins, shape, strict=True)]
    known = tensors.get(key)
    if known is None:
        known = tensors[key] = TensorStorageMetadata(TensorProperties(arrays.kind(key)), Size(ends), [])
    elif len(known.size) != len(ends):
        raise CheckpointError(f"{arrays.source}: {key!r} has other axes than in another file.")
    known.size = Size(map(max, known.size, ends))
    known.chunks.append(ChunkStorageMetadata(Size(begins), Size(shape)))
