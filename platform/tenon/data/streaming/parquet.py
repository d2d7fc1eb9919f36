"""Parquet shards, read by pyarrow: a row is a sample, its columns are the fields.

What can be read is a row group, which is decoded whole; those that were decoded last are kept, up to 64 MiB
of a shard in each process. For a shuffled order, write small row groups.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tenon.data.streaming.byte_ranges import Reader, ReaderFile
from tenon.data.streaming.tables import Table, counts
from tenon.errors import DataError
from tenon.serialize.limits import cut

#: Bytes of the decoded row groups of a shard that a process keeps.
_KEPT = 1 << 26


class _Groups:
    """The row groups that were decoded last, by group and columns. Each thread and process may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[object, ...], Any] = OrderedDict()  # pyarrow has no types

    def get(self, key: tuple[object, ...]) -> Any:  # a table of pyarrow's, or None
        """The table of a row group, if it is kept."""
        with self._lock:
            if key in self._tables:
                self._tables.move_to_end(key)
            return self._tables.get(key)

    def put(self, key: tuple[object, ...], table: Any) -> None:  # likewise
        """Keep the table of a row group, and let go of others."""
        with self._lock:
            self._tables[key] = table
            while len(self._tables) > 1 and sum(each.nbytes for each in self._tables.values()) > _KEPT:
                self._tables.popitem(last=False)

    def __reduce__(self) -> tuple[type[_Groups], tuple[()]]:
        return _Groups, ()  # a process that is spawned begins without any


class ParquetIndex:
    """The rows of each row group of a shard, and its columns."""

    kind = "parquet"

    def __init__(self, size: int, columns: list[str], ends: np.ndarray) -> None:
        self.size, self.columns, self.ends = size, columns, ends
        self._groups = _Groups()

    @classmethod
    def scan(cls, reader: Reader) -> ParquetIndex:
        """Read the footer of a shard."""
        file = _opened(reader)
        metadata = file.metadata
        rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        if not sum(rows):
            raise DataError("it has no samples: it has no rows")
        return cls(reader.size, list(file.schema_arrow.names), np.cumsum(rows, dtype=np.int64))

    def __len__(self) -> int:
        return int(self.ends[-1])

    def key(self, row: int) -> str:
        """The name of a sample in errors."""
        return f"row {row}"

    def read(
        self, reader: Reader, rows: Sequence[int], wanted: Sequence[str] | None
    ) -> list[dict[str, object]]:
        """Rows, by their columns; lists of numbers are arrays."""
        columns = [name for name in self.columns if wanted is None or name in wanted]
        file = None
        samples = []
        for row in rows:
            group = int(np.searchsorted(self.ends, row, side="right"))
            table = self._groups.get((group, *columns))
            if table is None:
                file = _opened(reader) if file is None else file
                table = _decoded(file, group, columns)
                self._groups.put((group, *columns), table)
            place = row - (int(self.ends[group - 1]) if group else 0)
            if place >= table.num_rows:
                raise DataError(
                    f"sample {self.key(row)!r}: row group {group} is not the one that was indexed"
                )
            samples.append({name: _value(table.column(name)[place]) for name in columns})
        return samples

    def table(self) -> Table:
        """What ``of`` makes an index from again."""
        return {"size": self.size, "columns": self.columns, "ends": self.ends}

    @classmethod
    def of(cls, table: Table) -> ParquetIndex:
        """An index from a file; DataError if it is malformed."""
        size, columns = table["size"], table["columns"]
        if type(size) is not int or type(columns) is not list or not all(type(c) is str for c in columns):
            raise DataError("size or columns are malformed")
        ends = counts(table, "ends")
        if not ends[-1]:
            raise DataError("ends are malformed")
        return cls(size, columns, ends)


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    """The modules ``pyarrow`` and ``pyarrow.parquet``; DataError if pyarrow is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError("Parquet shards need pyarrow: pip install 'tenon-platform[parquet]'") from error
    return pyarrow, pyarrow.parquet


def _opened(reader: Reader) -> Any:  # pyarrow has no types
    """The file as pyarrow's; DataError if it is damaged."""
    pyarrow, parquet = _pyarrow()
    try:
        file = pyarrow.PythonFile(io.BufferedReader(ReaderFile(reader)), mode="r")
        return parquet.ParquetFile(file, page_checksum_verification=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"it is not a Parquet file, or is damaged: {cut(error)}") from error


def _decoded(file: Any, group: int, columns: list[str]) -> Any:  # likewise
    """A row group; DataError if it is damaged."""
    pyarrow, _ = _pyarrow()
    try:
        return file.read_row_group(group, columns=columns)
    except (pyarrow.ArrowException, OSError, IndexError) as error:
        raise DataError(f"row group {group} cannot be read: {cut(error)}") from error


def _value(scalar: Any) -> object:  # likewise
    """A cell as Python's value, or an array if it is a list of numbers."""
    values = getattr(scalar, "values", None)
    if values is None:
        return scalar.as_py()
    pyarrow, _ = _pyarrow()
    kind = values.type
    numeric = (
        pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)
    )
    if isinstance(scalar, pyarrow.DictionaryScalar) or not numeric or values.null_count:
        return scalar.as_py()
    return values.to_numpy(zero_copy_only=False).copy()
