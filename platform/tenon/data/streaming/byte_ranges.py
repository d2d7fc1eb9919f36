"""``Reader``: ranges of the bytes of one shard. The formats read shards through it, wherever these are."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import BinaryIO, Protocol

from tenon.errors import DataError


class Reader(Protocol):
    """Random access to ``size`` bytes."""

    size: int

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each range ``(start, stop)``, all of them complete."""


class FileReader:
    """The bytes of an open file. Threads may share it: there is no position."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor, self.size = descriptor, size

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each range; DataError if the file has been cut off."""
        return [self._range(low, high) for low, high in ranges]

    def _range(self, low: int, high: int) -> bytes:
        part = os.pread(self.descriptor, high - low, low)
        if len(part) == high - low:
            return part
        parts = [part]
        while part and (low := low + len(part)) < high:  # Linux reads at most 2 GiB at a time
            part = os.pread(self.descriptor, high - low, low)
            parts.append(part)
        if low < high:
            raise DataError(f"it has been cut off at byte {low:,}")
        return b"".join(parts)


class MemoryReader:
    """The bytes of a file object, which is read whole."""

    def __init__(self, file: BinaryIO) -> None:
        self.content = file.read()
        self.size = len(self.content)

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each range."""
        return [self.content[low:high] for low, high in ranges]


class ReaderFile(io.RawIOBase):
    """A ``Reader`` as a file object, for libraries that read from one."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._position = reader, 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read anywhere."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._reader.size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # any buffer
        """Read as many bytes as fit into ``buffer``."""
        stop = min(self._position + len(buffer), self._reader.size)
        if stop <= self._position:
            return 0
        (part,) = self._reader.read([(self._position, stop)])
        buffer[: len(part)] = part
        self._position = stop
        return len(part)


class Window:
    """Small reads at growing positions, from blocks that are read ahead where they are close together."""

    def __init__(self, reader: Reader, block: int, least: int) -> None:
        self._reader, self._block, self._least = reader, block, least
        self._start, self._bytes = 0, b""

    def at(self, position: int, length: int) -> bytes:
        """The bytes from ``position`` on, fewer than ``length`` at the end."""
        low = position - self._start
        if low < 0 or low + length > len(self._bytes):
            near = position - (self._start + len(self._bytes)) < self._block
            stop = min(position + max(length, self._block if near else self._least), self._reader.size)
            self._start = position
            (self._bytes,) = self._reader.read([(position, stop)]) if stop > position else (b"",)
            low = 0
        return self._bytes[low : low + length]
