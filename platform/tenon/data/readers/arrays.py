"""Readers of numeric files: IDX, CSV and npz, plain or gzip-compressed. Nothing is unpickled."""

from __future__ import annotations

import csv
import gzip
import io
import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tenon.data.dataset import TensorDataset
from tenon.errors import DataError
from tenon.tensors.creation import create

if TYPE_CHECKING:
    import os

    from tenon.tensors.tensor import Tensor

#: Type code (third byte) of an IDX file -> big-endian dtype.
_IDX = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def _bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of ``path``, decompressed if it is gzip."""
    data = Path(path).read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise DataError(f"{path} is a damaged gzip file: {error}. Download it again.") from error


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """Read the tensor in an IDX file, the format of MNIST, with its dtype and shape.

    DataError if it is not an IDX file, or its length does not match the header.
    """
    data = _bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX:
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
    array = np.frombuffer(data, kind, offset=begin).reshape(shape)
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
    rows = [r for r in csv.reader(io.StringIO(_bytes(path).decode("utf-8-sig")), delimiter=delimiter) if r]
    if not rows:
        raise DataError(f"{path} has no rows.")
    named = header if header is not None else not all(map(_is_number, rows[0]))
    names = [name.strip() for name in rows.pop(0)] if named else [str(i) for i in range(len(rows[0]))]
    table = np.empty((len(rows), len(names)), np.float64)
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise DataError(
                f"{path}, row {i + 1 + named}: {len(row)} cells, but {len(names)} columns. Quote cells that"
                " contain the delimiter."
            )
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
    integral = bool(np.all(values == np.round(values)))
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
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [name for name in names if name not in archive.files]
            if missing:
                raise DataError(f"{path} has no array {missing[0]!r}; it has {', '.join(archive.files)}.")
            arrays = [archive[name] for name in names or archive.files]
    except (zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path} is not an npz file, or is damaged: {error}.") from error
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: {error}. Save arrays of numbers: nothing is unpickled here.") from error
    return TensorDataset(*(create.tensor(array) for array in arrays))
