"""Plans, results and exceptions as bytes, to send them to other ranks: JSON, which is never unpickled.

Items of plans are short lists, as there are several for every tensor. What planners and storages add is sent
as collectives of objects send it: numbers, strings, containers, arrays and tensors. Exceptions arrive as
exceptions of the same class if it is one of Python's or tenon's, else as RuntimeErrors that name it.
"""

from __future__ import annotations

import builtins
import io
import json
import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

from tenon import dtypes, errors
from tenon.distributed.checkpoint.api import WRAPPED_EXCEPTION
from tenon.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.planner import (
    BytesIOWriteData,
    LoadItemType,
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from tenon.distributed.checkpoint.storage import WriteResult
from tenon.distributed.communication import objects
from tenon.tensors.size import Size

#: JSON of any kind.
Json: TypeAlias = Any


def encode(value: object) -> bytes:
    """A plan, a list of results, metadata or any other value as bytes; CommunicatorError, naming the type,
    for what cannot be sent."""
    return json.dumps(_packed(value), separators=(",", ":")).encode()


def decode(data: bytes) -> Any:  # of the type that was encoded
    """The value that was encoded."""
    kind, content = json.loads(data)
    return _READERS[kind](content)


def _packed(value: object) -> list[Json]:
    """A value as JSON, with the name of how it is to be read."""
    kind = type(value)
    if value is None or kind in (str, int, bool):
        return ["plain", value]
    if isinstance(value, dict) and _are_paths(value):
        return ["paths", value]
    if isinstance(value, SavePlan) and kind is SavePlan:
        parts = [_packed(value.storage_data), _packed(value.planner_data)]
        return ["save plan", [[_write_item(item) for item in value.items], *parts, value.usable]]
    if isinstance(value, LoadPlan) and kind is LoadPlan:
        parts = [_packed(value.storage_data), _packed(value.planner_data)]
        return ["load plan", [[_read_item(item) for item in value.items], *parts]]
    if isinstance(value, list) and value and all(type(each) is WriteResult for each in value):
        return ["results", [_result(each) for each in value]]
    if isinstance(value, Metadata) and kind is Metadata:
        return ["metadata", _metadata(value)]
    if isinstance(value, io.BytesIO):
        return ["bytes", objects.encode(value.getvalue()).decode()]
    return ["object", objects.encode(value).decode()]


def _are_paths(value: dict[object, object]) -> bool:
    return all(
        type(name) is str and type(path) is tuple and all(type(key) in (str, int) for key in path)
        for name, path in value.items()
    )


def _index(index: MetadataIndex) -> list[Json]:
    return [index.fqn, index.offset, index.index]


def _write_item(item: WriteItem) -> list[Json]:
    nbytes = None if item.bytes_io_data is None else item.bytes_io_data.nbytes
    packed = [*_index(item.index), item.type.name, nbytes]
    data = item.tensor_data
    if data is not None:
        properties = [data.properties.dtype.name, data.properties.requires_grad]
        packed += [data.chunk.offsets, data.chunk.sizes, data.size, *properties]
    return packed


def _write_item_of(packed: list[Json]) -> WriteItem:
    fqn, offset, number, kind, nbytes, *tensor = packed
    data = None
    if tensor:
        starts, sizes, size, dtype, requires_grad = tensor
        chunk = ChunkStorageMetadata(Size(starts), Size(sizes))
        properties = TensorProperties(dtypes.BY_NAME[dtype], requires_grad=requires_grad)
        data = TensorWriteData(chunk, properties, Size(size))
    known = None if nbytes is None else BytesIOWriteData(nbytes)
    return WriteItem(MetadataIndex(fqn, offset, number), WriteItemType[kind], known, data)


def _read_item(item: ReadItem) -> list[Json]:
    places = [*_index(item.dest_index), *_index(item.storage_index)]
    return [item.type.name, *places, item.dest_offsets, item.storage_offsets, item.lengths]


def _read_item_of(packed: list[Json]) -> ReadItem:
    kind, *places, starts, saved_starts, lengths = packed
    target, source = MetadataIndex(*places[:3]), MetadataIndex(*places[3:])
    return ReadItem(LoadItemType[kind], target, Size(starts), source, Size(saved_starts), Size(lengths))


def _result(result: WriteResult) -> list[Json]:
    return [*_index(result.index), result.size_in_bytes, _packed(result.storage_data)]


def _result_of(packed: list[Json]) -> WriteResult:
    return WriteResult(MetadataIndex(*packed[:3]), packed[3], _unpacked(packed[4]))


def _metadata(metadata: Metadata) -> list[Json]:
    entries: dict[str, Json] = {}
    for name, described in metadata.state_dict_metadata.items():
        if isinstance(described, BytesStorageMetadata):
            entries[name] = None
            continue
        chunks = [[chunk.offsets, chunk.sizes] for chunk in described.chunks]
        properties = [described.properties.dtype.name, described.properties.requires_grad]
        entries[name] = [*properties, described.size, chunks]
    meta = metadata.storage_meta
    place = None
    if meta is not None:
        place = [None if meta.checkpoint_id is None else str(meta.checkpoint_id), meta.save_id]
    return [entries, place, _packed(metadata.planner_data)]


def _metadata_of(packed: list[Json]) -> Metadata:
    entries, place, data = packed
    described: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    for name, entry in entries.items():
        if entry is None:
            described[name] = BytesStorageMetadata()
            continue
        dtype, requires_grad, size, chunks = entry
        boxes = [ChunkStorageMetadata(Size(starts), Size(sizes)) for starts, sizes in chunks]
        properties = TensorProperties(dtypes.BY_NAME[dtype], requires_grad=requires_grad)
        described[name] = TensorStorageMetadata(properties, Size(size), boxes)
    meta = None if place is None else StorageMeta(*place)
    return Metadata(described, planner_data=_unpacked(data), storage_meta=meta)


def _unpacked(packed: list[Json]) -> Any:  # of the type that was packed
    return _READERS[packed[0]](packed[1])


_READERS: dict[str, Callable[[Json], object]] = {
    "plain": lambda content: content,
    "paths": lambda content: {name: tuple(path) for name, path in content.items()},
    "save plan": lambda content: SavePlan(
        [*map(_write_item_of, content[0])], _unpacked(content[1]), _unpacked(content[2]), content[3]
    ),
    "load plan": lambda content: LoadPlan(
        [*map(_read_item_of, content[0])], _unpacked(content[1]), _unpacked(content[2])
    ),
    "results": lambda content: [*map(_result_of, content)],
    "metadata": _metadata_of,
    "bytes": lambda content: io.BytesIO(objects.decode(content.encode())),
    "object": lambda content: objects.decode(content.encode()),
}


def join(parts: list[bytes]) -> bytes:
    """``parts`` as one byte string."""
    lengths = objects.encode([len(part) for part in parts])
    return len(lengths).to_bytes(8, "big") + lengths + b"".join(parts)


def part(joined: bytes, number: int) -> bytes:
    """Part ``number`` of what ``join`` returned."""
    start = 8 + int.from_bytes(joined[:8], "big")
    lengths: list[int] = objects.decode(joined[8:start])
    start += sum(lengths[:number])
    return joined[start : start + lengths[number]]


def encode_failure(failure: WRAPPED_EXCEPTION) -> bytes:
    """An exception and its traceback as bytes."""
    error, trace = failure
    frames = [[frame.filename, frame.lineno, frame.name, frame.line] for frame in trace]
    args: list[object] = list(error.args)
    if isinstance(error, OSError) and error.filename is not None and len(args) == 2:
        args.append(str(error.filename))
    if not all(type(each) in (str, int, float, type(None)) for each in args):
        args = [str(error)]
    kind = type(error)
    return objects.encode([kind.__module__, kind.__qualname__, args, str(error), frames])


def decode_failure(content: bytes) -> WRAPPED_EXCEPTION:
    """The exception and the traceback that were encoded."""
    module, name, args, text, frames = objects.decode(content)
    summary = traceback.StackSummary.from_list([tuple(frame) for frame in frames])
    source = {"builtins": builtins, "tenon.errors": errors}.get(module)
    kind = getattr(source, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            made = kind(*args)
        except TypeError:  # a class that is made of something else, as UnicodeDecodeError
            made = None
        if made is not None and str(made) == text:
            return made, summary
    return RuntimeError(f"{name}: {text}"), summary
