"""``manifest.json``, the list of a checkpoint's files and of what is in them.

It has a SHA-256 of itself, and that of the manifest in each file, which has those of the arrays: so every
byte of a checkpoint is checked when it is read. Paths of nested values are kept, to nest them again.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from tenon import dtypes
from tenon.distributed.checkpoint.chunks import problem_of
from tenon.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    Path,
    TensorProperties,
    TensorStorageMetadata,
)
from tenon.errors import CheckpointError
from tenon.serialize.limits import FACTOR, FREE, MAX_AXES, cut, short
from tenon.serialize.migrate import Migrations
from tenon.tensors.size import Size

NAME = "manifest.json"
#: Names of the files with the ranks' tensors: the save, the rank and the number of ranks.
SHARD = re.compile(r"shard-([0-9a-f]{16})-\d+-of-\d+\.safetensors")
SCHEMA = Migrations("manifest of a distributed checkpoint", current=1)
#: JSON of any kind.
Json: TypeAlias = Any


@dataclass(frozen=True)
class Stored:
    """Where a chunk or a value is: the tensor ``key`` of the file ``relative_path``."""

    relative_path: str
    key: str


@dataclass(frozen=True)
class ShardFile:
    """A file of a checkpoint: its size in bytes, and the SHA-256 of its manifest."""

    size: int
    digest: str


@dataclass
class StorageData:
    """What ``FileSystemWriter`` adds to the metadata: the place of each chunk and value, and the files."""

    places: dict[MetadataIndex, Stored]
    files: dict[str, ShardFile]


def to_text(metadata: Metadata, data: StorageData) -> str:
    """The text of the manifest."""
    numbers = {name: number for number, name in enumerate(data.files)}

    def place(index: MetadataIndex) -> list[object]:
        stored = data.places[index]
        return [numbers[stored.relative_path], stored.key]

    entries: dict[str, Json] = {}
    for name, described in metadata.state_dict_metadata.items():
        if isinstance(described, BytesStorageMetadata):
            entries[name] = {"bytes": place(MetadataIndex(name))}
            continue
        entries[name] = {
            "dtype": described.properties.dtype.name,
            "shape": list(described.size),
            "requires_grad": described.properties.requires_grad,
            "chunks": [
                [list(chunk.offsets), list(chunk.sizes), *place(MetadataIndex(name, chunk.offsets))]
                for chunk in described.chunks
            ],
        }
    paths = metadata.planner_data
    document = {
        "schema": SCHEMA.current,
        "files": [[name, file.size, file.digest] for name, file in data.files.items()],
        "entries": entries,
        "paths": None if paths is None else {name: _path(name, path) for name, path in paths.items()},
    }
    text = _canonical(document)
    return f'{{"sha256":"{hashlib.sha256(text.encode()).hexdigest()}","checkpoint":{text}}}\n'


def _canonical(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _path(name: object, path: object) -> list[str | int]:
    if type(path) is not tuple or not all(type(key) in (str, int) for key in path):
        raise CheckpointError(
            f"the planner's data of {short(name)} is {short(path)}, which a folder cannot keep: it keeps"
            " paths, tuples of strings and numbers. Save other data as values of the state dict."
        )
    return list(path)


def from_text(text: str, source: str) -> Metadata:
    """The metadata in a manifest; CheckpointError if it is damaged, or describes what cannot be."""
    try:
        outer = json.loads(text)
        document = outer["checkpoint"]
        if hashlib.sha256(_canonical(document).encode()).hexdigest() != outer["sha256"]:
            raise CheckpointError("it does not have the SHA-256 it was saved with")
        document = SCHEMA.upgrade(document, document["schema"], source)
        return _read(document, len(text))
    except CheckpointError as error:
        if str(error).startswith("cannot load"):
            raise
        raise CheckpointError(f"cannot load {source}: {cut(error)}. {_ADVICE}") from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"cannot load {source}: it is damaged, or not a manifest ({cut(repr(error))}). {_ADVICE}"
        ) from error


_ADVICE = "Nothing was loaded. Take another copy or an earlier checkpoint."


def _read(document: dict[str, Json], length: int) -> Metadata:
    """The metadata in a document; raises errors of any kind if it is malformed."""
    files = {}
    for name, size, digest in document["files"]:
        if SHARD.fullmatch(name) is None or type(size) is not int or size < 0 or type(digest) is not str:
            raise CheckpointError(f"the manifest names the impossible file {short(name)}")
        files[name] = ShardFile(size, digest)
    names = list(files)
    places: dict[MetadataIndex, Stored] = {}
    described: dict[str, STORAGE_TYPES] = {}
    room = FREE + FACTOR * (sum(file.size for file in files.values()) + length)
    for name, entry in document["entries"].items():
        if "bytes" in entry:
            number, key = entry["bytes"]
            described[name], places[MetadataIndex(name)] = BytesStorageMetadata(), _stored(names, number, key)
            continue
        tensor = described[name] = _tensor(name, entry)
        room -= tensor.properties.dtype.itemsize * _count(tensor.size)
        if room < 0:
            raise CheckpointError("the manifest describes tensors far larger than its files")
        for chunk, (_, _, number, key) in zip(tensor.chunks, entry["chunks"], strict=True):
            places[MetadataIndex(name, chunk.offsets)] = _stored(names, number, key)
    paths = document["paths"]
    data = None if paths is None else {name: _checked_path(path) for name, path in paths.items()}
    return Metadata(described, planner_data=data, storage_data=StorageData(places, files))


def _tensor(name: str, entry: dict[str, Json]) -> TensorStorageMetadata:
    size = _size(entry["shape"])
    chunks = [ChunkStorageMetadata(_size(row[0]), _size(row[1])) for row in entry["chunks"]]
    problem = problem_of(size, chunks)
    if problem is not None:
        raise CheckpointError(f"tensor {short(name)} of {list(size)}: {problem}")
    properties = TensorProperties(
        dtypes.BY_NAME[entry["dtype"]], requires_grad=entry["requires_grad"] is True
    )
    return TensorStorageMetadata(properties, size, chunks)


def _size(numbers: Json) -> Size:
    if type(numbers) is not list or len(numbers) > MAX_AXES:
        raise CheckpointError(f"a shape is {short(numbers)}")
    if any(type(n) is not int or not 0 <= n < 1 << 63 for n in numbers):
        raise CheckpointError(f"a shape is {short(numbers)}")
    return Size(numbers)


def _count(size: Size) -> int:
    count = 1
    for length in size:
        count *= length
    return count


def _stored(names: list[str], number: Json, key: Json) -> Stored:
    if type(number) is not int or not 0 <= number < len(names) or type(key) is not str:
        raise CheckpointError(f"the manifest refers to file {short(number)} of {len(names)}")
    return Stored(names[number], key)


def _checked_path(path: Json) -> Path:
    numbers = [key for key in path if type(key) is int]
    if not path or not all(type(key) in (str, int) for key in path) or type(path[0]) is not str:
        raise CheckpointError(f"the path of a value is {short(path)}")
    if any(not 0 <= number < 1 << 20 for number in numbers):
        raise CheckpointError(f"the path of a value is {short(path)}")
    return tuple(path)
