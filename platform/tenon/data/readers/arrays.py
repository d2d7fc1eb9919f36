"""Files of numbers: IDX, CSV and npz, plain or compressed with gzip. Nothing is unpickled."""

from __future__ import annotations

import csv
import gzip
import io
import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.data.dataset import TensorDataset
from tenon.errors import DataError
from tenon.tensors.creation import create

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

#: The third byte of an IDX file -> its big-endian dtype.
_IDX = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def _bytes(path: Any) -> bytes:
    """What is in ``path``, unpacked if it is gzip."""
    data = Path(path).read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise DataError(f"{path} is a damaged gzip file: {error}. Fetch it again.") from error


def read_idx(path: Any) -> Tensor:
    """The tensor in an IDX file, the format of MNIST, in its own dtype and shape.

    DataError if it is no IDX file, or not as long as its header says.
    """
    data = _bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX:
        raise DataError(f"{path} is no IDX file: it begins with {data[:4].hex(' ') or 'nothing'}.")
    kind, rank = np.dtype(_IDX[data[2]]), data[3]
    begin = 4 + 4 * rank
    shape = struct.unpack(f">{rank}I", data[4:begin]) if len(data) >= begin else ()
    expected = math.prod(shape) * kind.itemsize
    if len(shape) != rank or len(data) - begin != expected:
        raise DataError(
            f"{path} has {len(data) - begin} bytes of numbers; its header says {list(shape)} of"
            f" {kind.itemsize} bytes each, {expected}. The file is cut off or damaged."
        )
    made = np.frombuffer(data, kind, offset=begin).reshape(shape)
    return create.tensor(made.astype(kind.newbyteorder("=")))


def read_csv(
    path: Any, target: str | int | None = None, *, delimiter: str = ",", header: bool | None = None
) -> TensorDataset:
    """The rows of a CSV file of numbers as ``(row, target)``, or ``(row,)`` without ``target``.

    Rows are float32; the column ``target``, by its name or place, is int64 if all of it is integers.
    ``header=None`` takes the first line for names if it is no numbers. DataError with the line's number for a
    cell that is no number, and for a row of another length.
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
                " hold the delimiter."
            )
        for j, cell in enumerate(row):
            try:
                table[i, j] = float(cell)
            except ValueError:
                raise DataError(
                    f"{path}, row {i + 1 + named}, column {names[j]!r}: {cell!r} is no number."
                ) from None
    if target is None:
        return TensorDataset(create.tensor(table.astype(np.float32)))
    place = _column(path, names, target)
    values = table[:, place]
    whole = bool(np.all(values == np.round(values)))
    labels = create.tensor(values.astype(np.int64 if whole else np.float32))
    return TensorDataset(create.tensor(np.delete(table, place, axis=1).astype(np.float32)), labels)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _column(path: Any, names: Sequence[str], target: str | int) -> int:
    if isinstance(target, str) and target in names:
        return names.index(target)
    if isinstance(target, int) and -len(names) <= target < len(names):
        return target % len(names)
    raise DataError(f"{path} has no column {target!r}; it has {', '.join(map(repr, names))}.")


def read_npz(path: Any, *names: str) -> TensorDataset:
    """The arrays ``names`` of an npz file, or all in their order, as a data set along their first axes.

    DataError for arrays of objects, which only pickle could read, and for names that are not there.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
            missing = [name for name in names if name not in found.files]
            if missing:
                raise DataError(f"{path} has no array {missing[0]!r}; it has {', '.join(found.files)}.")
            arrays = [found[name] for name in names or found.files]
    except (zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path} is no npz file, or damaged: {error}.") from error
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: {error}. Save arrays of numbers: nothing is unpickled here.") from error
    return TensorDataset(*(create.tensor(array) for array in arrays))
