"""Write an uncompressed zip archive sequentially, in the layout of PyTorch's ``.pt`` files.

Sizes and checksums are known before a record is written, so that nothing is rewritten: any object with
``write`` can be the file, and a failure leaves no archive that looks complete. Data begin at multiples of 64
bytes (or ``storage_alignment``), which PyTorch needs to map a file into memory. Records and archives beyond
4 GB use zip64.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

import numpy as np

from tenon.serialize import options

#: An object with a buffer of bytes.
Bytes: TypeAlias = bytes | bytearray | memoryview


class Writable(Protocol):
    """A binary file open for writing: the one method that is called."""

    def write(self, data: Bytes, /) -> object:
        """Write ``data``; a file that may write less returns the number of bytes written."""


_LIMIT = 0xFFFFFFFF  # the value of a 32-bit field whose number is in the zip64 field
_LARGE = _LIMIT  # the smallest number that is written to a zip64 field
_UTF8 = 0x0800
_DATE = 0x21  # 1980-01-01, so that equal contents give equal files
_CHUNK = 1 << 24


class ZipWriter:
    """Writes records to ``file`` one after another; ``finish`` writes the directory."""

    def __init__(self, file: Writable) -> None:
        self._file = file
        self._alignment = options.save.storage_alignment
        self._position = 0
        self._directory = bytearray()
        self._count = 0

    def record(self, name: str, data: Bytes | np.ndarray) -> int:
        """Append ``data`` (bytes or an array of bytes) as record ``name``; return its CRC-32."""
        buffer = data.data if isinstance(data, np.ndarray) else data
        view = memoryview(buffer).cast("B") if len(data) else memoryview(b"")
        return self._append(
            name, view.nbytes, lambda: (view[i : i + _CHUNK] for i in range(0, view.nbytes, _CHUNK))
        )

    def space(self, name: str, size: int) -> int:
        """Append ``size`` zeros as record ``name``, to be filled later; its CRC-32 is written as 0."""
        zeros = bytes(min(size, _CHUNK))
        return self._append(
            name,
            size,
            lambda: (memoryview(zeros)[: size - i] for i in range(0, size, _CHUNK)),
            checked=False,
        )

    def _append(
        self, name: str, size: int, parts: Callable[[], Iterator[memoryview]], *, checked: bool = True
    ) -> int:
        """Append a record whose data are ``parts()``, with their CRC-32 if ``checked``; return that or 0."""
        crc, encoded = 0, name.encode()
        if checked and options.save.compute_crc32:
            for part in parts():
                crc = zlib.crc32(part, crc)
        big = size >= _LARGE
        zip64 = struct.pack("<HHQQ", 1, 16, size, size) if big else b""
        padding = -(self._position + 30 + len(encoded) + len(zip64) + 4) % self._alignment
        extra = zip64 + b"FB" + struct.pack("<H", padding) + b"Z" * padding
        field_size = _LIMIT if big else size
        common = struct.pack(
            "<HHHHHIIIHH",
            45 if big else 20,
            _UTF8,
            0,
            0,
            _DATE,
            crc,
            field_size,
            field_size,
            len(encoded),
            len(extra),
        )
        self._list(encoded, common, size, big)
        self._write(b"PK\x03\x04" + common + encoded + extra)
        for part in parts():
            self._write(part)
        return crc

    def finish(self) -> None:
        """Write the directory and the end of the archive."""
        start, size, count = self._position, len(self._directory), self._count
        self._write(self._directory)
        if start >= _LARGE or count >= 0xFFFF:
            end = self._position
            self._write(
                b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, size, start)
            )
            self._write(b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1))
        entry_count = min(count, 0xFFFF)
        self._write(
            b"PK\x05\x06"
            + struct.pack(
                "<HHHHIIH", 0, 0, entry_count, entry_count, size, _LIMIT if start >= _LARGE else start, 0
            )
        )

    def _list(self, name: bytes, common: bytes, size: int, big: bool) -> None:
        """Add the record that begins at the current position to the directory."""
        far = self._position >= _LARGE
        zip64 = (struct.pack("<QQ", size, size) if big else b"") + (
            struct.pack("<Q", self._position) if far else b""
        )
        extra = struct.pack("<HH", 1, len(zip64)) + zip64 if zip64 else b""
        version = 45 if zip64 else 20
        entry = struct.pack("<HH", version, version) + common[2:-2] + struct.pack("<H", len(extra))
        entry += struct.pack("<HHHII", 0, 0, 0, 0, _LIMIT if far else self._position)
        self._directory += b"PK\x01\x02" + entry + name + extra
        self._count += 1

    def _write(self, data: Bytes) -> None:
        self._position += len(data)
        written = self._file.write(data)
        while type(written) is int and written < len(data):  # an unbuffered file may write a part only
            data = memoryview(data)[written:]
            written = self._file.write(data)
