"""Read and check the header of a safetensors file, and its arrays one by one.

Sizes are compared with the file, arrays must fill it without gaps, and in a file that tenon wrote every array
and the manifest must have the SHA-256 with which they were saved.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import Any, BinaryIO, NoReturn, TypedDict, TypeGuard

import numpy as np

from tenon import dtypes
from tenon.engine.aval import contiguous_strides
from tenon.errors import CheckpointError
from tenon.serialize.layout import LoadedStorage, rebuild
from tenon.serialize.limits import MAX_AXES, cut, short
from tenon.serialize.migrate import MANIFEST
from tenon.serialize.placement import Placement
from tenon.tensors.tensor import Tensor

#: dtype -> safetensors' name for it; complex128 has none and is stored as pairs of F64.
NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
    "bool": "BOOL", "complex64": "C64",
}  # fmt: skip
_BY_NAME = {name: dtypes.BY_NAME[kind] for kind, name in NAMES.items()}

#: Keys of the header, and of its metadata.
METADATA, OURS, DIGEST = "__metadata__", "tenon", "tenon.sha256"
CHUNK = 1 << 24


class ArrayEntry(TypedDict):
    """The entry of an array in the header."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


def begins(head: bytes) -> bool:
    """Whether a file that begins with ``head`` can be a safetensors file."""
    return (
        len(head) > 9
        and head[8:9] == b"{"
        and head[9:10] in b'"} \n'
        and struct.unpack("<Q", head[:8])[0] < 1 << 40
    )


class Arrays:
    """The checked header of a file, and its arrays.

    ``document`` is tenon's manifest and ``digest`` its SHA-256, both None in a file of another writer;
    ``metadata`` is what the writer added to the header.
    """

    digest: str | None = None

    def __init__(self, file: BinaryIO, placement: Placement) -> None:
        self._file, self._placement, self.source = file, placement, placement.source
        start = file.tell()
        header, self._start = self._read_header(start)
        self.metadata: object = header.pop(METADATA, {})
        self.entries: dict[str, ArrayEntry] = header
        self._check_entries(file.seek(0, 2) - self._start)
        self.document = self._document(self.metadata)
        self._storages: dict[str, LoadedStorage] = {}

    def storage(self, name: str, location: str) -> LoadedStorage:
        """The storage of an array, saved at ``location``; its checksum is compared when it is read."""
        storage = self._storages.get(name)
        if storage is not None:
            return storage
        kind = self.kind(name)
        low, high = self.entries[name]["data_offsets"]
        memory = None
        if self._placement.needs_data:
            memory = np.empty(high - low, np.uint8)
            self._fill(name, memory, self._start + low)
        storage = LoadedStorage(memory, high - low, kind, self._placement.device("cpu"))
        self._storages[name] = storage
        self._placement.place(storage, location)
        return storage

    def plain(self, name: str) -> Tensor:
        """An array as a tensor, with the shape and dtype in the header."""
        storage, shape = self.storage(name, "cpu"), tuple(self.entries[name]["shape"])
        return rebuild(storage, storage.dtype, 0, shape, contiguous_strides(shape))

    def kind(self, name: str) -> dtypes.dtype:
        """The dtype of an array; CheckpointError if tenon has none of that name."""
        kind = _BY_NAME.get(self.entries[name]["dtype"])
        if kind is None:
            raise CheckpointError(
                f"array {short(name)} has dtype {self.entries[name]['dtype']!r:.80}, which tenon does not"
                " support"
            )
        return kind

    def forget(self) -> None:
        """Let go of the storages that were read."""
        self._storages.clear()

    def check(self, name: str) -> None:
        """Read an array and compare its checksum, whatever its dtype."""
        low, high = self.entries[name]["data_offsets"]
        self._fill(name, np.empty(high - low, np.uint8), self._start + low)

    def _fill(self, name: str, memory: np.ndarray, position: int) -> None:
        """Read an array into ``memory``, bytes, and compare its checksum."""
        self._file.seek(position)
        view, done = memory.data, 0
        while done < len(view):
            part = self._file.read(min(CHUNK, len(view) - done))
            if not part:
                self._broken(f"it ends inside array {short(name)}")
            view[done : done + len(part)] = part
            done += len(part)
        if self.document is not None:
            dtype_name, shape, digest = self.document["arrays"][name]
            if [dtype_name, shape] != [self.entries[name]["dtype"], self.entries[name]["shape"]]:
                self._broken(f"array {short(name)} is described in two ways")
            if hashlib.sha256(view).hexdigest() != digest:
                self._broken(f"array {short(name)} does not have the SHA-256 it was saved with")

    def _read_header(self, start: int) -> tuple[dict[str, Any], int]:  # JSON
        """The header as JSON, not checked yet, and the position of the data."""
        size = self._file.seek(0, 2) - start
        self._file.seek(start)
        head = self._file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if length < 2 or length > size - 8:
            self._broken(f"its header should have {length} bytes, and {max(size - 8, 0)} follow")
        try:
            header = json.loads(self._file.read(length).decode(), object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            self._broken(f"its header is not JSON: {cut(error)}")
        if type(header) is not dict:
            self._broken("its header is not a JSON object")
        return header, start + 8 + length

    def _check_entries(self, size: int) -> None:
        """Arrays must lie one after another, fill the file, and have the size of their shape."""
        position = 0
        rows = []
        for name, entry in self.entries.items():
            if not _is_entry(entry):
                self._broken(f"array {short(name)} is described by {entry!r:.200}")
            low, high = entry["data_offsets"]
            rows.append((low, high, name, entry))
        for low, high, name, entry in sorted(rows, key=lambda row: row[:3]):
            kind = _BY_NAME.get(entry["dtype"])
            if low != position or high < low:
                self._broken(f"array {short(name)} begins at byte {low} instead of {position}")
            if kind is not None and math.prod(entry["shape"]) * kind.itemsize != high - low:
                self._broken(
                    f"array {short(name)} of shape {short(entry['shape'])} and dtype {entry['dtype']:.80}"
                    f" has {high - low} bytes"
                )
            position = high
        if position != size:
            self._broken(f"its arrays take {position} bytes, and {size} are there")

    def _document(self, metadata: object) -> dict[str, Any] | None:  # JSON
        """The manifest in the header's metadata, upgraded to the current version; None if there is none."""
        if type(metadata) is not dict or not (OURS in metadata or DIGEST in metadata):
            return None
        text, digest = metadata.get(OURS), metadata.get(DIGEST)
        if (
            type(text) is not str
            or hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != digest
        ):
            self._broken("its manifest does not have the SHA-256 it was saved with")
        self.digest = digest
        try:
            document = json.loads(text, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            self._broken(f"its manifest is not JSON: {cut(error)}")
        if type(document) is not dict:
            self._broken("its manifest is not a JSON object")
        document = MANIFEST.upgrade(document, document.get("schema"), self.source)
        arrays = document.get("arrays")
        if type(arrays) is not dict or set(arrays) != set(self.entries):
            self._broken("its manifest lists other arrays than its header")
        if not all(type(row) is list and len(row) == 3 for row in arrays.values()):
            self._broken("its manifest describes an array in an unknown way")
        return document

    def _broken(self, problem: str) -> NoReturn:
        raise CheckpointError(
            f"cannot load {self.source}: the file is truncated or damaged ({problem}). Its contents cannot"
            " be trusted, so nothing was loaded. Take another copy or an earlier checkpoint."
        )


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object as a dict; raises if a key is repeated."""
    items = dict(pairs)
    if len(items) != len(pairs):
        raise ValueError("a name is used twice")
    return items


def _is_entry(entry: object) -> TypeGuard[ArrayEntry]:
    """Whether a value in the header has the form of an entry."""
    if type(entry) is not dict or set(entry) != {"dtype", "shape", "data_offsets"}:
        return False
    shape, offsets = entry["shape"], entry["data_offsets"]
    numbers = (
        [*shape, *offsets] if type(shape) is list and type(offsets) is list and len(offsets) == 2 else [None]
    )
    return (
        type(entry["dtype"]) is str
        and len(numbers) <= MAX_AXES + 2
        and all(type(n) is int and 0 <= n < 1 << 63 for n in numbers)
    )
