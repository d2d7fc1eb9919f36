"""``.safetensors`` files: a JSON header and packed arrays, with the structure of any savable object.

What tenon adds stands in the header's metadata: the structure, the table of tensors (ties, views,
``requires_grad``) and a SHA-256 of every array and of the metadata itself. A flat dict of tensors is
therefore a plain safetensors file to everybody else; a file from elsewhere loads as a flat dict.

The format is read and written here rather than by the ``safetensors`` package, which only the tests use, to
hold both against each other: the package goes through the whole file in memory unless both ends are paths,
knows no checksums, and orders metadata at random, so that equal objects give different files (ADR 0007).
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any, BinaryIO

import numpy as np

from tenon import dtypes
from tenon.engine.aval import contiguous_strides
from tenon.errors import CheckpointError, TenonError
from tenon.nn.parameter import Parameter
from tenon.serialize import manifest
from tenon.serialize.contents import MarkedStep, Path, tensors_of
from tenon.serialize.layout import Described, StorageTable, meta_tensor, rebuild
from tenon.serialize.migrate import MANIFEST
from tenon.serialize.packing import Packing, View
from tenon.serialize.placement import Placement
from tenon.serialize.tensor_arrays import CHUNK, DIGEST, METADATA, NAMES, OURS, Arrays

Array = np.ndarray


class Packed:
    """An object made ready to be written: nothing in it can fail any more but the disk.

    Its data are the tensors' own memory, until ``detach`` copies them.
    """

    def __init__(self, obj: Any) -> None:
        tensors = tensors_of(obj)
        self._tensors = tensors  # kept alive until the bytes are written
        self._index = {id(tensor): index for index, tensor in enumerate(tensors)}
        self._paths: dict[int, Path] = {}
        structure = manifest.encode(obj, self._number)
        table = StorageTable(tensors)
        described = [table.describe(tensor) for tensor in tensors]
        packing = Packing(described)
        names = _entry_names(packing, self._paths)
        entries: dict[str, Any] = {}
        self._data: list[Any] = []
        order = sorted(
            range(len(names)), key=lambda e: (-described[packing.entries[e].owner].dtype.itemsize, names[e])
        )
        position = 0
        for number in order:
            entry = packing.entries[number]
            owner = described[entry.owner]
            shape = [*owner.shape] if entry.whole else [len(entry.data)]
            entries[names[number]] = {
                "dtype": NAMES.get(owner.dtype.name, "F64") if entry.whole else "U8",
                "shape": [*shape, 2] if entry.whole and owner.dtype is dtypes.complex128 else shape,
                "data_offsets": [position, position + len(entry.data)],
            }
            position += len(entry.data)
            self._data.append(entry.data)
        self._size = position
        self._entries = entries
        self._structure = structure
        self._rows = [_row(d, v, names) for d, v in zip(described, packing.views, strict=True)]

    def detach(self, buffer: Array | None = None) -> Array:
        """Copy the data, so that the tensors may change; returns the memory, to be given again next time."""
        if buffer is None or buffer.size < self._size:
            buffer = np.empty(self._size, np.uint8)
        position, copies = 0, []
        for data in self._data:
            place = buffer[position : position + len(data)]
            place[...] = data
            copies.append(place)
            position += len(data)
        self._data = copies
        self._tensors.clear()
        return buffer

    def write(self, file: Any, name: str) -> None:
        """Write everything to ``file``."""
        header = self._header()
        file.write(struct.pack("<Q", len(header)) + header)
        for data in self._data:
            for start in range(0, len(data), CHUNK):
                file.write(data[start : start + CHUNK])

    def _header(self) -> bytes:
        arrays = {
            name: [entry["dtype"], entry["shape"], hashlib.sha256(data).hexdigest()]
            for (name, entry), data in zip(self._entries.items(), self._data, strict=True)
        }
        document = {
            "schema": MANIFEST.current,
            "structure": self._structure,
            "tensors": self._rows,
            "arrays": arrays,
        }
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
        metadata = {OURS: text, DIGEST: hashlib.sha256(text.encode()).hexdigest()}
        header = json.dumps({METADATA: metadata, **self._entries}, separators=(",", ":")).encode()
        return header + b" " * (-len(header) % 8)

    def _number(self, tensor: Any, path: Path) -> int:
        index = self._index[id(tensor)]
        self._paths.setdefault(index, path)
        return index


def read(file: BinaryIO, placement: Placement) -> Any:
    """The object in a safetensors file of ours, or the flat dict of anybody's."""
    source = placement.source
    arrays = Arrays(file, placement)
    try:
        if arrays.document is None:
            return {name: _plain(arrays, name) for name in arrays.entries}
        tensors = [_tensor(arrays, row) for row in arrays.document["tensors"]]
        return manifest.decode(arrays.document["structure"], tensors)
    except CheckpointError as error:
        if str(error).startswith("cannot load"):
            raise
        raise CheckpointError(f"cannot load {source}: {error}.") from error
    except (ArithmeticError, LookupError, RecursionError, TenonError, TypeError, ValueError) as error:
        raise CheckpointError(f"cannot load {source}: its manifest is malformed ({error!r}).") from error


def verify(file: BinaryIO, source: str) -> None:
    """Read every array and compare its SHA-256."""
    arrays = Arrays(file, Placement("cpu", source))
    for name in arrays.entries:
        arrays.check(name)


def _plain(arrays: Arrays, name: str) -> Any:
    """An array as a tensor, as the header describes it."""
    storage, shape = arrays.storage(name, "cpu"), tuple(arrays.entries[name]["shape"])
    return rebuild(storage, storage.dtype, 0, shape, contiguous_strides(shape))


def _tensor(arrays: Arrays, row: dict[str, Any]) -> Any:
    """A tensor of the manifest's table."""
    kind, shape = dtypes.BY_NAME[row["dtype"]], tuple(row["shape"])
    if row["array"] is None:
        tensor = meta_tensor(kind, shape)
    else:
        storage = arrays.storage(row["array"], row["device"])
        stride = contiguous_strides(shape) if row["stride"] is None else tuple(row["stride"])
        tensor = rebuild(storage, kind, row["offset"], shape, stride)
    if row["parameter"]:
        return Parameter(tensor, row["requires_grad"] is True)
    return tensor.requires_grad_(True) if row["requires_grad"] is True else tensor


def _row(tensor: Described, view: View | None, names: list[str]) -> dict[str, Any]:
    """What the manifest says of a tensor; ``stride`` is None where it is contiguous."""
    row: dict[str, Any] = {
        "array": None if view is None else names[view.entry],
        "dtype": tensor.dtype.name,
        "shape": list(tensor.shape),
        "offset": 0 if view is None else view.offset,
        "stride": None,
        "device": tensor.location,
        "requires_grad": tensor.requires_grad,
        "parameter": tensor.is_parameter,
    }
    if view is not None and view.stride != contiguous_strides(tensor.shape):
        row["stride"] = list(view.stride)
    return row


def _entry_names(packing: Packing, paths: dict[int, Path]) -> list[str]:
    """A name for every array: the key path of its tensor, so that a flat dict keeps its keys."""
    names: list[str] = []
    taken = {METADATA}
    for entry in packing.entries:
        path = paths[entry.owner]
        plain = (
            ".".join(str(step).lstrip(".") if isinstance(step, MarkedStep) else str(step) for step in path)
            or "tensor"
        )
        plain = plain.encode("utf-8", "replace").decode() + ("" if entry.whole else "#memory")
        name, number = plain, 1
        while name in taken:
            number += 1
            name = f"{plain}#{number}"
        taken.add(name)
        names.append(name)
    return names
