"""Read the headers of a tar file: which member lies where. Contents are not read.

``ustar``, GNU (long names, large numbers) and pax are understood. What a data set cannot have is refused by
name: links, sparse and compressed files. Every size is compared with that of the file, and the mark at the
end must be there: a file that was cut off anywhere, a download for example, is noticed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from tenon.data.streaming.byte_ranges import Reader, Window
from tenon.errors import DataError

BLOCK = 512
#: The most bytes of a long name or of pax records.
_MOST = 1 << 16
_ZERO = bytes(BLOCK)
_FIELDS = struct.Struct("100s 24x 12s 12x 8s 1s 100x 8s 80x 155s 12x")
_FILES, _FOLDER, _LONG_NAME, _LONG_LINK, _PAX, _PAX_OF_ALL = b"0\0007", b"5", b"L", b"K", b"x", b"g"
_REFUSED = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"S": "a sparse file",
    b"M": "a part of a file in another archive",
}


class Member(NamedTuple):
    """A file in the archive: its data are ``size`` bytes at ``offset``, after a header of this CRC-32."""

    name: str
    offset: int
    size: int
    header: int


def members(reader: Reader, block: int, least: int) -> Iterator[Member]:
    """The files of an archive. DataError for damage, which names the member after which it was found."""
    window = Window(reader, block, least)
    position, last = 0, ""
    name: str | None = None
    size: int | None = None
    while True:
        head = window.at(position, BLOCK)
        if len(head) < BLOCK:
            _broken(f"it ends without the mark of an end at byte {position:,}{last}: it was cut off")
        if head == _ZERO:
            _check_end(window, position, reader.size)
            return
        raw, stated, sum_, kind, magic, prefix = _FIELDS.unpack(head)
        if not _has_checksum(head, sum_):
            _broken(f"the header at byte {position:,}{last} does not have the checksum that it states")
        count = _number(stated)
        offset = position + BLOCK
        if kind in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_OF_ALL):
            if count > _MOST:
                _broken(f"the header at byte {position:,}{last} states a name of {count:,} bytes")
            data = window.at(offset, count)
            if len(data) < count:
                _broken(f"it ends inside a name at byte {offset:,}{last}")
            if kind == _LONG_NAME:
                name = _text(data.rstrip(b"\0"), last)
            elif kind == _PAX:
                name, size = _pax(data, name, last)
            position = offset + -(-count // BLOCK) * BLOCK
            continue
        if size is not None:
            count = size
        if name is None:
            ustar = magic.startswith(b"ustar\0")
            parts = [prefix, raw] if ustar and prefix.strip(b"\0") else [raw]
            name = _text(b"/".join(part.partition(b"\0")[0] for part in parts), last)
        if kind in _REFUSED:
            raise DataError(
                f"member {name!r:.200} is {_REFUSED[kind]}. Pack files only: tar --dereference"
                " --hard-dereference"
            )
        if kind in _FILES:
            if offset + count > reader.size:
                _broken(
                    f"member {name!r:.200} has {count:,} bytes from byte {offset:,} on, and it ends at"
                    f" {reader.size:,}"
                )
            yield Member(name, offset, count, zlib.crc32(head))
        elif kind != _FOLDER:
            raise DataError(f"member {name!r:.200} is of type {kind!r}, not a file. Pack files only")
        else:
            count = 0
        position = offset + -(-count // BLOCK) * BLOCK
        last = f", after member {name!r:.200}"
        name = size = None


def _has_checksum(head: bytes, field: bytes) -> bool:
    """Whether ``field`` states the sum of the header's bytes, where the field itself counts as spaces."""
    # The lower half of adler32 is the sum modulo 65521 and one more: forty times as fast as sum().
    total = (zlib.adler32(head) & 0xFFFF) - 1 - sum(field) + sum(b" " * len(field))
    return (_number(field) - total) % 65521 == 0


def _number(field: bytes) -> int:
    """A number in octal digits, or in base 256 if the first bit is set."""
    if field[0] & 0x80:
        if field[0] != 0x80:
            _broken(f"a header has the number {field.hex()}")
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not digits:
        return 0
    try:
        value = int(digits, 8)
    except ValueError:
        _broken(f"a header has the number {field!r}")
    if value < 0:
        _broken(f"a header has the number {field!r}")
    return value


def _pax(data: bytes, name: str | None, last: str) -> tuple[str | None, int | None]:
    """Name and size in pax records, each ``LENGTH KEY=VALUE`` and a line break."""
    size, position = None, 0
    while position < len(data):
        space = data.find(b" ", position, position + 20)
        try:
            length = int(data[position:space]) if space > 0 else 0
        except ValueError:
            length = 0
        end = position + length
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if length < 5 or end > len(data) or not equals or data[end - 1 : end] != b"\n":
            _broken(f"the pax records{last} are malformed")
        if key == b"path":
            name = _text(value, last)
        elif key == b"size":
            if not value.isdigit() or len(value) > 19:
                _broken(f"the pax records{last} state a size of {value!r:.40}")
            size = int(value)
        elif key.startswith(b"GNU.sparse"):
            raise DataError(f"a member{last} is a sparse file. Pack it without --sparse")
        position = end
    return name, size


def _text(name: bytes, last: str) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise DataError(
            f"the name {name!r:.200}{last} is not UTF-8. Rename the file, and pack it again"
        ) from None


def _check_end(window: Window, position: int, size: int) -> None:
    """DataError if anything follows the mark of the end: archives that were joined by ``cat``."""
    while position < size:
        part = window.at(position, min(size - position, 1 << 16))
        if part.strip(b"\0"):
            raise DataError(
                f"data follow the archive's end near byte {position:,}: archives were joined by cat. Join"
                " them by tar --concatenate, or keep them apart"
            )
        position += len(part)


def _broken(problem: str) -> NoReturn:
    raise DataError(f"it is not a tar file, or truncated or damaged: {problem}")
