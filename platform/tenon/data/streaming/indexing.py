"""Find, build and keep the index of a shard: beside the cache, beside the shard, or in memory only.

An index is saved as ``tenon.save`` saves a dict, so that its bytes have checksums, and whatever it says is
compared with the size of its shard before it is used. One that is damaged, or of another version of the
shard, is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from tenon.data.streaming.byte_ranges import Reader
from tenon.data.streaming.locations import (
    LocalFiles,
    Place,
    Stat,
    index_beside,
    suffix_of,
)
from tenon.data.streaming.parquet import ParquetIndex
from tenon.data.streaming.rows import RowsIndex
from tenon.data.streaming.tables import Table
from tenon.data.streaming.tar import LOCAL, REMOTE, TarIndex
from tenon.errors import CheckpointWriteError, DataError, TenonError, TenonWarning
from tenon.serialize import load, save
from tenon.serialize.atomic import replacing
from tenon.serialize.limits import cut
from tenon.tensors.creation.create import from_numpy

_VERSION = 1
_INDEX_CLASSES = {each.kind: each for each in (TarIndex, RowsIndex, ParquetIndex)}


class Index(Protocol):
    """Where the samples of a shard of one format are, and how they are read."""

    size: int

    def __len__(self) -> int:
        """The number of samples."""

    def key(self, row: int) -> str:
        """The key of a sample, or its name in errors."""

    def read(
        self, reader: Reader, rows: Sequence[int], wanted: Sequence[str] | None
    ) -> list[dict[str, object]]:
        """Samples, as their contents by field."""

    def table(self) -> Table:
        """What the index is saved as."""


def scan(reader: Reader, suffix: str, *, remote: bool = False, checksums: bool = False) -> Index:
    """Build the index of a shard from the shard."""
    if suffix == ".tar":
        block, least = REMOTE if remote else LOCAL
        return TarIndex.scan(reader, block, least, checksums=checksums)
    if suffix == ".safetensors":
        return RowsIndex.scan(reader, checksums=checksums)
    return ParquetIndex.scan(reader)


def packed(index: Index, kind: str, stamp: str) -> bytes:
    """An index as the bytes of a file."""
    table = {
        name: from_numpy(_writable(v)) if isinstance(v, np.ndarray) else v
        for name, v in index.table().items()
    }
    buffer = io.BytesIO()
    save({"format": kind, "version": _VERSION, "stamp": stamp, "index": table}, buffer)
    return buffer.getvalue()


def _writable(array: np.ndarray) -> np.ndarray:
    return array if array.flags.writeable else array.copy()


def unpacked(content: bytes, kind: str, stat: Stat, stamp: str | None) -> Index | None:
    """The index in the bytes of a file, or None if it is of another version of the shard.

    DataError if it is damaged or malformed. ``stamp`` is compared unless it is None.
    """
    try:
        document = load(io.BytesIO(content))
        if (
            document["format"] != kind
            or document["version"] != _VERSION
            or type(document["index"]) is not dict
        ):
            raise DataError(
                f"it is of format {document['format']!r:.40}, version {document['version']!r:.40}"
            )
        if (stamp is not None and document["stamp"] != stamp) or document["index"]["size"] != stat.size:
            return None
        index: Index = _INDEX_CLASSES[kind].of(document["index"])
    except (ArithmeticError, AttributeError, LookupError, TenonError, TypeError, ValueError) as error:
        raise DataError(f"it is not an index, or is damaged: {cut(error)}") from error
    return index


def write_index(path: str | os.PathLike[str]) -> str:
    """Write the index of a shard on disk beside it, with checksums of all contents, and return its path.

    Readers of the shard, also by a URL, then need not scan it. ``ShardWriter`` does this for each shard. The
    index of a shard that is written again is wrong: write it again, too.
    """
    name = os.fspath(path)
    place = LocalFiles()
    suffix, stat = suffix_of(name), place.stat(name)
    with named(name), place.reader(name, stat.size) as reader:
        index = scan(reader, suffix, checksums=True)
    with replacing(index_beside(name)) as file:
        file.write(packed(index, suffix[1:], ""))
    return index_beside(name)


class Indices:
    """The indices of shards: those that are kept in the folder ``path``, if that is not None."""

    def __init__(self, path: str | None) -> None:
        self.path = None if path is None else os.path.join(path, "index")
        self._warned = False
        if self.path is not None:
            os.makedirs(self.path, exist_ok=True)

    def find(self, url: str, place: Place, stat: Stat) -> Index | None:
        """The index of a shard that was built before; None if there is none.

        One from beside the shard, which does not say of which version it is, is taken anew each time.
        """
        kind = suffix_of(url)[1:]
        if self.path is not None:
            own = os.path.join(self.path, name_of(url, stat))
            content = LocalFiles().small(own)
            with contextlib.suppress(DataError):  # a damaged one is made again
                found = None if content is None else unpacked(content, kind, stat, stat.stamp)
                if found is not None:
                    return found
        content = place.small(index_beside(url))
        if content is None:
            return None
        try:
            return unpacked(content, kind, stat, None)
        except DataError as error:
            warnings.warn(f"{index_beside(url)} is not used: {error}", TenonWarning, stacklevel=2)
            return None

    def keep(self, url: str, stat: Stat, index: Index) -> None:
        """Save an index for the next time, if there is a folder for that."""
        if self.path is None:
            return
        own = os.path.join(self.path, name_of(url, stat))
        try:
            with replacing(own) as file:
                file.write(packed(index, suffix_of(url)[1:], stat.stamp))
        except (CheckpointWriteError, OSError) as error:  # a full disk: the index of this process is complete
            if not self._warned:
                self._warned = True
                warnings.warn(f"indices are not kept: {cut(error)}", TenonWarning, stacklevel=2)


def name_of(url: str, stat: Stat) -> str:
    """The name of a version of a shard in a cache."""
    text = f"{url}\n{stat.size}\n{stat.stamp}".encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:40] + suffix_of(url)


@contextlib.contextmanager
def named(url: str) -> Iterator[None]:
    """Begin the message of a DataError with the shard that it is about."""
    try:
        yield
    except DataError as error:
        text = str(error)
        raise DataError(text if text.startswith(url) else f"{url}: {text.rstrip('.')}.") from error
