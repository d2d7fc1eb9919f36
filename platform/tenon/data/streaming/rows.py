"""Safetensors shards: row ``i`` of all tensors, which have equally many, is sample ``i``.

The header of the file is the index. With checksums, which ``ShardWriter`` writes, each row of each tensor is
compared with its CRC-32 when it is read.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Sequence
from typing import BinaryIO, cast

import numpy as np

from tenon import dtypes
from tenon.data.streaming.byte_ranges import Reader, ReaderFile
from tenon.data.streaming.tables import Table, integers
from tenon.errors import CheckpointError, DataError
from tenon.serialize.limits import MAX_AXES, cut
from tenon.serialize.placement import Placement
from tenon.serialize.tensor_arrays import NAMES, Arrays

_DTYPES = {name: dtypes.BY_NAME[kind].numpy for kind, name in NAMES.items()}
#: Bytes of a header that are read at once.
_HEADER = 1 << 16
#: The most bytes at once of those whose checksums are computed.
_CHUNK = 1 << 24


class RowsIndex:
    """The tensors of a shard: name -> dtype, shape of a row, and where the first row begins."""

    kind = "safetensors"

    def __init__(
        self,
        size: int,
        rows: int,
        tensors: dict[str, tuple[str, tuple[int, ...], int]],
        checksums: np.ndarray | None,
    ) -> None:
        self.size, self.rows, self.tensors, self.checksums = size, rows, tensors, checksums
        self._nbytes = {
            name: math.prod(shape) * _DTYPES[kind].itemsize for name, (kind, shape, _) in tensors.items()
        }

    @classmethod
    def scan(cls, reader: Reader, *, checksums: bool) -> RowsIndex:
        """Read the header of a shard; with ``checksums``, all of it."""
        file = ReaderFile(reader)
        try:
            arrays = Arrays(cast(BinaryIO, io.BufferedReader(file, _HEADER)), Placement("cpu", "it"))
        except CheckpointError as error:
            raise DataError(f"it is not a safetensors file, or is damaged: {cut(error)}") from None
        start = reader.size - max((entry["data_offsets"][1] for entry in arrays.entries.values()), default=0)
        tensors = {
            name: (entry["dtype"], tuple(entry["shape"][1:]), start + entry["data_offsets"][0])
            for name, entry in sorted(arrays.entries.items(), key=lambda item: item[1]["data_offsets"])
        }
        shapes = {name: entry["shape"] for name, entry in arrays.entries.items()}
        first = {shape[0] if shape else None for shape in shapes.values()}
        if len(first) != 1 or None in first:
            raise DataError(
                f"its tensors have the shapes {cut(str(shapes))}: the samples of a shard are the rows of"
                " tensors that have equally many"
            )
        rows = int(first.pop() or 0)
        if not rows or all(0 in shape for _, shape, _ in tensors.values()):
            raise DataError("it has no samples: its tensors have no rows, or rows of no bytes")
        for name, (kind, _, _) in tensors.items():
            if kind not in _DTYPES:
                raise DataError(f"tensor {name!r:.100} has dtype {kind!r:.40}, which tenon does not support")
        index = cls(reader.size, rows, tensors, None)
        if checksums:
            index.checksums = np.stack([index._sums(reader, name) for name in tensors], 1).reshape(-1)
        return index

    def _sums(self, reader: Reader, name: str) -> np.ndarray:
        """The CRC-32 of each row of a tensor."""
        start, nbytes = self.tensors[name][2], self._nbytes[name]
        step = max(_CHUNK // max(nbytes, 1), 1)
        sums = np.empty(self.rows, np.uint32)
        for row in range(0, self.rows, step):
            count = min(step, self.rows - row)
            (part,) = reader.read([(start + row * nbytes, start + (row + count) * nbytes)])
            for i in range(count):
                sums[row + i] = zlib.crc32(part[i * nbytes : (i + 1) * nbytes])
        return sums

    def __len__(self) -> int:
        return self.rows

    def key(self, row: int) -> str:
        """The name of a sample in errors."""
        return f"row {row}"

    def read(
        self, reader: Reader, rows: Sequence[int], wanted: Sequence[str] | None
    ) -> list[dict[str, object]]:
        """Rows as arrays, by the names of their tensors; DataError that names the row if one is damaged."""
        names = [name for name in self.tensors if wanted is None or name in wanted]
        spans = []
        for row in rows:
            for name in names:
                start, nbytes = self.tensors[name][2], self._nbytes[name]
                spans.append((start + row * nbytes, start + (row + 1) * nbytes))
        parts = iter(reader.read(spans))
        return [{name: self._value(row, name, next(parts)) for name in names} for row in rows]

    def _value(self, row: int, name: str, part: bytes) -> object:
        kind, shape, _ = self.tensors[name]
        if self.checksums is not None:
            position = row * len(self.tensors) + list(self.tensors).index(name)
            if zlib.crc32(part) != self.checksums[position]:
                raise DataError(
                    f"sample {self.key(row)!r}: the content of {name!r:.100} does not have its checksum"
                )
        value = np.frombuffer(bytearray(part), _DTYPES[kind]).reshape(shape)
        return value if shape else value[()]

    def table(self) -> Table:
        """What ``of`` makes an index from again."""
        tensors = [[name, kind, list(shape), start] for name, (kind, shape, start) in self.tensors.items()]
        return {"size": self.size, "rows": self.rows, "tensors": tensors, "checksums": self.checksums}

    @classmethod
    def of(cls, table: Table) -> RowsIndex:
        """An index from a file; DataError unless all of it lies within a shard of its size."""
        size, rows, tensors = table["size"], table["rows"], table["tensors"]
        if (
            type(size) is not int
            or type(rows) is not int
            or rows < 1
            or type(tensors) is not list
            or not tensors
        ):
            raise DataError("size, rows or tensors are malformed")
        found: dict[str, tuple[str, tuple[int, ...], int]] = {}
        for row in tensors:
            name, kind, shape, start = row
            numbers = [start, *shape] if type(shape) is list else [None]
            if type(name) is not str or name in found or kind not in _DTYPES or len(numbers) > MAX_AXES:
                raise DataError("tensors are malformed")
            if any(type(n) is not int or not 0 <= n < 1 << 63 for n in numbers):
                raise DataError("tensors are malformed")
            if start + rows * math.prod(shape) * _DTYPES[kind].itemsize > size:
                raise DataError(f"tensor {name!r:.100} lies beyond the end of the shard")
            found[name] = (kind, tuple(shape), start)
        if all(0 in shape for _, shape, _ in found.values()):  # any number of such rows fits into a shard
            raise DataError("tensors are malformed")
        sums = table["checksums"]
        if sums is not None:
            sums = integers(table, "checksums", rows * len(found), 0, 0xFFFFFFFF)
        return cls(size, rows, found, sums)
