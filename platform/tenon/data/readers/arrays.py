"""Readers of numeric files: IDX, CSV and npz, plain or gzip-compressed. Nothing is unpickled."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import math
import struct
import tokenize
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.data.dataset import TensorDataset
from tenon.errors import CheckpointError, DataError
from tenon.serialize.limits import FACTOR, FREE, MAX_AXES, Allowance
from tenon.serialize.regular_files import open_regular
from tenon.serialize.zip_checks import BROKEN, opened
from tenon.tensors.creation import create

if TYPE_CHECKING:
    import os

    from tenon.tensors.tensor import Tensor

#: Type code (third byte) of an IDX file -> big-endian dtype.
_IDX = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def _bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of ``path``, decompressed if it is gzip."""
    try:
        with open_regular(path) as file:
            data = file.read()
    except CheckpointError as error:
        raise DataError(str(error)) from None
    if data[:2] != b"\x1f\x8b":
        return data
    most = FREE + FACTOR * len(data)
    try:
        with gzip.open(io.BytesIO(data)) as packed:
            content = packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file: {error}. Download it again.") from error
    if len(content) > most:
        raise DataError(f"{path} decompresses to more than {FACTOR} times its {len(data):,} bytes.")
    return content


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """Read the tensor in an IDX file, the format of MNIST, with its dtype and shape.

    DataError if it is not an IDX file, or its length does not match the header.
    """
    data = _bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX or data[3] > MAX_AXES:
        raise DataError(f"{path} is not an IDX file: it begins with {data[:4].hex(' ') or 'nothing'}.")
    kind, rank = np.dtype(_IDX[data[2]]), data[3]
    begin = 4 + 4 * rank
    shape = struct.unpack(f">{rank}I", data[4:begin]) if len(data) >= begin else ()
    expected = math.prod(shape) * kind.itemsize
    if len(shape) != rank or len(data) - begin != expected:
        raise DataError(
            f"{path} has {len(data) - begin} bytes of numbers; its header says {list(shape)} of"
            f" {kind.itemsize} bytes each, {expected}. The file is cut off or damaged."
        )
    try:
        array = np.frombuffer(data, kind, offset=begin).reshape(shape)
    except ValueError as error:  # no elements, and an axis of 2**32 - 1 beside one of 0
        raise DataError(f"{path} has the shape {list(shape)}: {error}") from None
    return create.tensor(array.astype(kind.newbyteorder("=")))


def read_csv(
    path: str | os.PathLike[str],
    target: str | int | None = None,
    *,
    delimiter: str = ",",
    header: bool | None = None,
) -> TensorDataset:
    """Read the rows of a numeric CSV file as ``(row, target)``, or ``(row,)`` without ``target``.

    Rows are float32; the column ``target``, a name or index, is int64 if all its values are integers.
    ``header=None`` treats the first line as names if it is not numeric. DataError with the line number for a
    non-numeric cell, and for a row of another length.
    """
    try:
        text = io.StringIO(_bytes(path).decode("utf-8-sig"))
        rows = [row for row in csv.reader(text, delimiter=delimiter) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}.") from error
    if not rows:
        raise DataError(f"{path} has no rows.")
    named = header if header is not None else not all(map(_is_number, rows[0]))
    names = [name.strip() for name in rows.pop(0)] if named else [str(i) for i in range(len(rows[0]))]
    for i, row in enumerate(rows):  # of all rows before any memory is allocated
        if len(row) != len(names):
            raise DataError(
                f"{path}, row {i + 1 + named}: {len(row)} cells, but {len(names)} columns. Quote cells that"
                " contain the delimiter."
            )
    table = np.empty((len(rows), len(names)), np.float64)
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            try:
                table[i, j] = float(cell)
            except ValueError:
                raise DataError(
                    f"{path}, row {i + 1 + named}, column {names[j]!r}: {cell!r} is not a number."
                ) from None
    if target is None:
        return TensorDataset(create.tensor(table.astype(np.float32)))
    column = _column(path, names, target)
    values = table[:, column]
    integral = bool(np.all((values == np.round(values)) & (np.abs(values) < 2.0**63)))
    labels = create.tensor(values.astype(np.int64 if integral else np.float32))
    return TensorDataset(create.tensor(np.delete(table, column, axis=1).astype(np.float32)), labels)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _column(path: str | os.PathLike[str], names: Sequence[str], target: str | int) -> int:
    if isinstance(target, str) and target in names:
        return names.index(target)
    if isinstance(target, int) and -len(names) <= target < len(names):
        return target % len(names)
    raise DataError(f"{path} has no column {target!r}; it has {', '.join(map(repr, names))}.")


def read_npz(path: str | os.PathLike[str], *names: str) -> TensorDataset:
    """Read the arrays ``names`` of an npz file, or all in order, as a data set along their first axes.

    DataError for object arrays, which would need pickle, and for missing names.
    """
    try:
        with open_regular(path) as file, opened(file, Allowance.of(file)) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            missing = [name for name in names if name not in entries]
            if missing:
                raise DataError(f"{path} has no array {missing[0]!r}; it has {', '.join(entries)}.")
            arrays = [array_in(archive.read(entries[name]), f"{path}: {name!r}") for name in names or entries]
    except DataError:
        raise
    except (*BROKEN, CheckpointError, MemoryError, SyntaxError, tokenize.TokenError) as error:
        raise DataError(f"{path} is not an npz file, or is damaged: {error}.") from error
    return TensorDataset(*(create.tensor(array) for array in arrays))


def array_in(content: bytes, what: str) -> np.ndarray:
    """Return the array in the bytes of an npy file; an error unless its header states its size."""
    start, shape, by_columns, kind = _described(content)
    if kind.hasobject:
        raise DataError(f"{what} has objects. Save arrays of numbers: nothing is unpickled here.")
    if math.prod(shape) * kind.itemsize != len(content) - start:
        raise DataError(f"{what} has {len(content) - start:,} bytes, not those of {shape}.")
    return np.frombuffer(content, kind, offset=start).reshape(shape, order="F" if by_columns else "C")


def _described(content: bytes) -> tuple[int, tuple[int, ...], bool, np.dtype]:
    """Where the numbers of an npy file begin, their shape and dtype, and whether columns come first."""
    start = 10 + int.from_bytes(content[8:10], "little")
    if content[6:8] == b"\x01\x00" and start < 256:  # the files of a data set have the same few headers
        return _parsed(content[:start])
    return _parsed.__wrapped__(content)


@functools.lru_cache(256)
def _parsed(content: bytes) -> tuple[int, tuple[int, ...], bool, np.dtype]:
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, kind = reader(stream)
    return stream.tell(), shape, by_columns, kind
