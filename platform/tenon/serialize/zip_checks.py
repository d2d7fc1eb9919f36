"""Check the directory of a zip archive before any record is read.

zipfile believes what the directory states, so that records could overlap, and a small file hold the same
megabytes a thousand times, or be compressed a thousandfold. Here records are in the file one after another,
stored or deflated, and what deflated ones inflate to is subtracted from an ``Allowance``.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import IO

from tenon.errors import CheckpointError
from tenon.serialize.limits import FACTOR, Allowance

#: What zipfile and zlib raise for damaged archives.
BROKEN = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, LookupError,
    struct.error, OverflowError,
)  # fmt: skip
_HEADER = 30  # bytes of a record's own header, before its name
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def opened(file: IO[bytes], allowance: Allowance) -> zipfile.ZipFile:
    """Return the archive in ``file`` after checking its directory.

    Damage raises one of ``BROKEN``, and records that inflate to too much a ``CheckpointError``.
    """
    archive = zipfile.ZipFile(file)
    end = archive.start_dir
    inflated = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset, reverse=True):
        last = info.header_offset + _HEADER + len(info.orig_filename) + info.compress_size
        if info.header_offset < 0 or last > end:
            raise zipfile.BadZipFile(f"record {info.filename!r:.80} overlaps what follows it")
        if info.compress_type not in _METHODS:
            raise zipfile.BadZipFile(
                f"record {info.filename!r:.80} is compressed by a method other than deflate"
            )
        if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
            raise zipfile.BadZipFile(f"record {info.filename!r:.80} has two sizes")
        inflated += info.file_size if info.compress_type == zipfile.ZIP_DEFLATED else 0
        end = info.header_offset
    try:
        allowance.take(inflated)
    except CheckpointError as error:
        raise CheckpointError(
            f"its compressed records state that they are {inflated:,} bytes, more than {FACTOR} times the"
            f" {allowance.size:,} of the file. Repack it without compression (unzip, then zip -0) if it is"
            " yours"
        ) from error
    return archive


def data_offset(file: IO[bytes], record: zipfile.ZipInfo) -> int:
    """The offset in the archive at which the data of a record begin."""
    position = file.tell()
    file.seek(record.header_offset)
    header = file.read(_HEADER)
    file.seek(position)
    names, extra = struct.unpack("<HH", header[26:30])
    return int(record.header_offset + _HEADER + names + extra)
