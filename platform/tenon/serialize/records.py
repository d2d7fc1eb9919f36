"""Access to single records of a ``.pt`` file: torch's ``_open_zipfile_writer`` and ``_open_zipfile_reader``.

For tools that inspect or assemble files; ``save`` and ``load`` do not use it.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, SupportsBytes, TypeAlias
from zipfile import ZipInfo

from tenon.errors import CheckpointError
from tenon.serialize.limits import Allowance
from tenon.serialize.zip_checks import BROKEN, data_offset, opened
from tenon.serialize.zip_writer import Writable, ZipWriter

#: A path, or a binary file object.
PathOrFile: TypeAlias = str | os.PathLike[str] | IO[bytes]


class RecordWriter:
    """Writes records into the one folder of an archive."""

    def __init__(self, file: Writable, folder: str) -> None:
        self._out, self._folder = ZipWriter(file), folder

    def write_record(self, name: str, data: str | SupportsBytes | Iterable[int], size: int) -> None:
        """Write the first ``size`` bytes of ``data`` as record ``name``."""
        encoded = data.encode() if isinstance(data, str) else bytes(data)
        self._out.record(f"{self._folder}/{name}", encoded[:size])

    def write_record_metadata(self, name: str, size: int) -> None:
        """Reserve ``size`` bytes as record ``name``."""
        self._out.space(f"{self._folder}/{name}", size)

    def write_end_of_file(self) -> None:
        """Write the version of the format and the directory."""
        self._out.record(f"{self._folder}/version", b"3\n")
        self._out.finish()


class RecordReader:
    """Reads records from the one folder of an archive."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        try:
            self._zip = opened(file, Allowance.of(file))
        except BROKEN as error:
            raise CheckpointError(
                f"PytorchStreamReader failed reading zip archive: {error}. Give a file that torch.save "
                "wrote in its zip format."
            ) from error
        names = self._zip.namelist()
        self._folder = names[0].partition("/")[0] if names else ""

    def _info(self, name: str) -> ZipInfo:
        try:
            return self._zip.getinfo(f"{self._folder}/{name}")
        except KeyError:
            raise CheckpointError(
                f"PytorchStreamReader failed locating file {name}: file not found. There are "
                f"{self.get_all_records()}."
            ) from None

    def has_record(self, name: str) -> bool:
        """Whether a record of this name exists."""
        return f"{self._folder}/{name}" in self._zip.namelist()

    def get_record(self, name: str) -> bytes:
        """The bytes of a record."""
        return self._zip.read(self._info(name))

    def get_record_offset(self, name: str) -> int:
        """The offset of a record's data in the file."""
        return data_offset(self._file, self._info(name))

    def get_all_records(self) -> list[str]:
        """The names of all records."""
        return [name.partition("/")[2] for name in self._zip.namelist()]


@contextlib.contextmanager
def open_file(name_or_buffer: PathOrFile, mode: str) -> Iterator[IO[bytes]]:
    """A file opened by its path and closed at the end, or the given file object, which stays open."""
    if isinstance(name_or_buffer, (str, os.PathLike)):
        with open(name_or_buffer, mode) as file:
            yield file
        return
    yield name_or_buffer
    if "w" in mode:
        name_or_buffer.flush()


@contextlib.contextmanager
def open_writer(name_or_buffer: PathOrFile) -> Iterator[RecordWriter]:
    """A writer of records; the archive is completed at the end of the block, unless that raises."""
    folder = Path(name_or_buffer).stem if isinstance(name_or_buffer, (str, os.PathLike)) else "archive"
    with open_file(name_or_buffer, "wb") as file:
        writer = RecordWriter(file, folder)
        yield writer
        writer.write_end_of_file()


@contextlib.contextmanager
def open_reader(name_or_buffer: PathOrFile) -> Iterator[RecordReader]:
    """A reader of records."""
    with open_file(name_or_buffer, "rb") as file:
        yield RecordReader(file if hasattr(file, "seek") else io.BytesIO(file.read()))
