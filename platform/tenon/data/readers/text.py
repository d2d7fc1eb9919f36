"""``TextLines``: text files as data sets of lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from tenon.data.dataset import Dataset
from tenon.errors import CheckpointError, DataError
from tenon.serialize.regular_files import open_regular

if TYPE_CHECKING:
    import os


class TextLines(Dataset[str]):
    """The lines of UTF-8 files, concatenated, without line endings.

    Only the byte offset of each line is kept in memory; a line is read from disk on access.
    DataError with file and line number for bytes that are not UTF-8.
    """

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        if not paths:
            raise DataError("TextLines needs at least one file.")
        self.paths = [Path(path) for path in paths]
        self._begins = [_line_begins(path) for path in self.paths]
        self._ends = np.cumsum([len(begins) - 1 for begins in self._begins])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"line {index} is out of range: there are {len(self)}")
        index %= len(self)
        number = int(np.searchsorted(self._ends, index, side="right"))
        line = index - (int(self._ends[number - 1]) if number else 0)
        begin, end = self._begins[number][line : line + 2]
        with _opened(self.paths[number]) as file:
            file.seek(int(begin))
            data = file.read(int(end - begin))
        if len(data) < end - begin:
            raise DataError(
                f"{self.paths[number]}, line {line + 1}: the file has been cut off since its lines were"
                " counted. Make the data set again."
            )
        try:
            return data.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.paths[number]}, line {line + 1}: {error}. Save the file as UTF-8."
            ) from error


def _line_begins(path: Path) -> np.ndarray:
    """Return the byte offsets at which lines begin, and the end of the last one."""
    begins = [0]
    with _opened(path) as file:
        for line in file:
            begins.append(begins[-1] + len(line))
    return np.array(begins, np.int64)


def _opened(path: Path) -> BinaryIO:
    """Open a file to read; DataError for a pipe, which would block."""
    try:
        return open_regular(path)
    except CheckpointError as error:
        raise DataError(str(error)) from None
