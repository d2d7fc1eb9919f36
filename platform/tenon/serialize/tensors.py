"""``.safetensors`` files: a JSON header and packed arrays, with the structure of any savable object.

tenon adds to the header's metadata: the structure, the table of tensors (ties, views, ``requires_grad``) and
a SHA-256 of every array and of the metadata itself. A flat dict of tensors is therefore a plain safetensors
file for other readers; files of other writers load as a flat dict.

The format is read and written here rather than by the ``safetensors`` package, with which only the tests
compare: the package holds the whole file in memory unless it reads from and writes to paths, has no
checksums, and writes metadata in random order, so that equal objects give different files (ADR 0007).
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import BinaryIO, TypedDict

import numpy as np

from tenon import dtypes
from tenon.engine.aval import contiguous_strides
from tenon.errors import CheckpointError, TenonError
from tenon.nn.parameter import Parameter
from tenon.serialize import manifest
from tenon.serialize.contents import MarkedStep, Path, tensors_of
from tenon.serialize.layout import Described, StorageTable, meta_tensor, rebuild
from tenon.serialize.limits import cut
from tenon.serialize.migrate import MANIFEST
from tenon.serialize.packing import Packing, View
from tenon.serialize.placement import Placement
from tenon.serialize.tensor_arrays import CHUNK, DIGEST, METADATA, NAMES, OURS, ArrayEntry, Arrays
from tenon.serialize.unchecked import warn_unchecked
from tenon.serialize.zip_writer import Writable
from tenon.tensors.tensor import Tensor


class Row(TypedDict):
    """A tensor in the manifest's table: a view of an array of the file.

    ``array`` is None on ``meta``, ``offset`` is in bytes, ``stride`` in elements; None if contiguous.
    """

    array: str | None
    dtype: str
    shape: list[int]
    offset: int
    stride: list[int] | None
    device: str
    requires_grad: bool
    parameter: bool


class Packed:
    """An object prepared for writing: ``write`` fails only if the disk does.

    Its data are the tensors' own memory, until ``detach`` copies them.
    """

    digest: str

    def __init__(self, obj: object) -> None:
        tensors = tensors_of(obj)
        self._tensors = tensors  # kept alive until the bytes are written
        self._index = {id(tensor): index for index, tensor in enumerate(tensors)}
        self._paths: dict[int, Path] = {}
        structure = manifest.encode(obj, self._number)
        table = StorageTable(tensors)
        described = [table.describe(tensor) for tensor in tensors]
        packing = Packing(described)
        names = _entry_names(packing, self._paths)
        entries: dict[str, ArrayEntry] = {}
        self._data: list[np.ndarray] = []
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

    def detach(self, buffer: np.ndarray | None = None) -> np.ndarray:
        """Copy the data, so that the tensors may change, into ``buffer`` or, if too small, a new one.

        Returns the buffer, which the next object can reuse.
        """
        if buffer is None or buffer.size < self._size:
            buffer = np.empty(self._size, np.uint8)
        position, copies = 0, []
        for data in self._data:
            part = buffer[position : position + len(data)]
            part[...] = data
            copies.append(part)
            position += len(data)
        self._data = copies
        self._tensors.clear()
        return buffer

    def write(self, file: Writable, name: str) -> None:
        """Write the object to ``file``; ``name`` is not used by this format. Sets ``digest``, the SHA-256 of
        the manifest, which has those of the arrays."""
        header = self._header()
        file.write(struct.pack("<Q", len(header)) + header)
        for data in self._data:
            for start in range(0, len(data), CHUNK):
                file.write(data[start : start + CHUNK].data)

    def _header(self) -> bytes:
        """The JSON of the header, padded with spaces to a multiple of 8 bytes."""
        arrays = {
            name: [entry["dtype"], entry["shape"], hashlib.sha256(data.data).hexdigest()]
            for (name, entry), data in zip(self._entries.items(), self._data, strict=True)
        }
        document = {
            "schema": MANIFEST.current,
            "structure": self._structure,
            "tensors": self._rows,
            "arrays": arrays,
        }
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        metadata = {OURS: text, DIGEST: self.digest}
        header = json.dumps({METADATA: metadata, **self._entries}, separators=(",", ":")).encode()
        return header + b" " * (-len(header) % 8)

    def _number(self, tensor: Tensor, path: Path) -> int:
        """The index of ``tensor``, whose first key path is recorded."""
        index = self._index[id(tensor)]
        self._paths.setdefault(index, path)
        return index


def read(file: BinaryIO, placement: Placement) -> object:
    """The object in a safetensors file of tenon's, or the flat dict in one of another writer."""
    source = placement.source
    arrays = Arrays(file, placement)
    try:
        if arrays.document is None:
            found = {name: arrays.plain(name) for name in arrays.entries}
            warn_unchecked(source, "safetensors files of other programs have none")
            return found
        tensors = [tensor_of(arrays, row) for row in arrays.document["tensors"]]
        return manifest.decode(arrays.document["structure"], tensors)
    except CheckpointError as error:
        if str(error).startswith("cannot load"):
            raise
        raise CheckpointError(f"cannot load {source}: {cut(error)}.") from error
    except (ArithmeticError, LookupError, RecursionError, TenonError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"cannot load {source}: its manifest is malformed ({cut(repr(error))})."
        ) from error


def verify(file: BinaryIO, source: str) -> None:
    """Read every array and compare its SHA-256."""
    arrays = Arrays(file, Placement("cpu", source))
    for name in arrays.entries:
        arrays.check(name)


def tensor_of(arrays: Arrays, row: Row) -> Tensor:
    """The tensor of a row of the manifest; errors of any kind are raised if the row is malformed."""
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


def _row(tensor: Described, view: View | None, names: list[str]) -> Row:
    """The row of a tensor in the manifest, as a view of the arrays with ``names``."""
    row: Row = {
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
    """Unique names for the arrays: the key paths of their tensors, so that a flat dict keeps its keys."""
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
