"""Tar shards as WebDataset writes them: files with a common name before the first dot are one sample.

``000123.jpg`` and ``000123.cls`` are the fields ``jpg`` and ``cls`` of the sample with the key ``000123``.
The index has the place of every member, and the CRC-32 of its header: a read takes the header along and
compares it, so that a shard that was replaced is an error, not another sample. With contents' own checksums
those are compared, too.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from tenon.data.streaming.byte_ranges import Reader
from tenon.data.streaming.tables import Strings, Table, counts, integers
from tenon.data.streaming.tar_headers import BLOCK, members
from tenon.errors import DataError

#: A path of WebDataset: the key, with the folder, and the field. Others are left out, as there, and hidden
#: files.
_NAME = re.compile(r"((?:.*/|)[^./]+)[.]([^/]*)", re.DOTALL)
_META = re.compile(r"__[^/]*__($|/)")
#: Members closer than this are read at once.
_GAP = 1 << 14
#: Bytes read ahead of headers, and at least, on disk and over a network.
LOCAL, REMOTE = (1 << 17, 1 << 12), (1 << 22, 1 << 16)
#: The most bytes at once of those whose checksums are computed.
_CHUNK = 1 << 24


class TarIndex:
    """Where the samples of a shard are. ``ends[i]`` is the number of members of samples 0 to ``i``."""

    kind = "tar"

    def __init__(
        self,
        size: int,
        keys: Strings,
        fields: list[str],
        ends: np.ndarray,
        places: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
        checksums: np.ndarray | None,
    ) -> None:
        self.size, self.keys, self.fields, self.ends = size, keys, fields, ends
        self.offsets, self.sizes, self.headers, self.kinds = places
        self.checksums = checksums

    @classmethod
    def scan(cls, reader: Reader, block: int, least: int, *, checksums: bool) -> TarIndex:
        """Read the headers of a shard; with ``checksums``, all of it."""
        samples: dict[str, int] = {}
        fields: dict[str, int] = {}
        seen: set[tuple[int, int]] = set()
        rows: list[tuple[int, int, int, int, int, int]] = []
        for name, offset, count, header in members(reader, block, least):
            parts = None if _META.match(name) else _NAME.fullmatch(name)
            if parts is None:
                continue
            sample = samples.setdefault(parts[1], len(samples))
            field = fields.setdefault(parts[2].lower(), len(fields))
            if (sample, field) in seen:
                raise DataError(
                    f"sample {parts[1]!r:.200} has two fields {parts[2]!r:.100}. Give each sample a key of"
                    " its own"
                )
            seen.add((sample, field))
            rows.append(
                (sample, offset, count, header, field, _crc(reader, offset, count) if checksums else 0)
            )
        if not rows:
            raise DataError("it has no samples: no file has a name with a dot, KEY.FIELD")
        table = np.array(rows, np.int64)
        table = table[np.argsort(table[:, 0], kind="stable")]
        ends = np.searchsorted(table[:, 0], np.arange(len(samples)), side="right")
        _, offsets, sizes, headers, kinds, sums = np.ascontiguousarray(table.T)
        places = (offsets, sizes, headers.astype(np.uint32), kinds.astype(np.int32))
        own = sums.astype(np.uint32) if checksums else None
        return cls(reader.size, Strings.of(list(samples)), list(fields), ends, places, own)

    def __len__(self) -> int:
        return len(self.ends)

    def key(self, row: int) -> str:
        """The key of a sample."""
        return self.keys[row]

    def read(
        self, reader: Reader, rows: Sequence[int], wanted: Sequence[str] | None
    ) -> list[dict[str, object]]:
        """The contents of samples, by their fields; DataError that names the sample if one is damaged."""
        chosen = [self._members(row, wanted) for row in rows]
        spans = [span for each in chosen for span in self._spans(each)]
        blocks = iter(reader.read(spans))
        return [self._sample(row, each, blocks) for row, each in zip(rows, chosen, strict=True)]

    def _members(self, row: int, wanted: Sequence[str] | None) -> list[int]:
        """The members of a sample with the ``wanted`` fields, in order of the archive."""
        low, high = int(self.ends[row - 1]) if row else 0, int(self.ends[row])
        if wanted is None:
            return list(range(low, high))
        return [m for m in range(low, high) if self.fields[self.kinds[m]] in wanted]

    def _spans(self, chosen: Sequence[int]) -> list[tuple[int, int]]:
        """The ranges to read for members: of each its header and data, together where they are close."""
        spans: list[tuple[int, int]] = []
        for member in chosen:
            offset = int(self.offsets[member])
            low, high = offset - BLOCK, offset + int(self.sizes[member])
            if spans and 0 <= low - spans[-1][1] < _GAP:
                spans[-1] = (spans[-1][0], high)
            else:
                spans.append((low, high))
        return spans

    def _sample(self, row: int, chosen: Sequence[int], blocks: Iterator[bytes]) -> dict[str, object]:
        sample: dict[str, object] = {"__key__": self.key(row)}
        block, start, stop = b"", 0, -1
        for member in chosen:
            offset, count = int(self.offsets[member]), int(self.sizes[member])
            if stop < 0 or not 0 <= offset - BLOCK - stop < _GAP:  # as in ``_spans``
                block, start = next(blocks), offset - BLOCK
            stop = offset + count
            header, data = (
                block[offset - BLOCK - start : offset - start],
                block[offset - start : stop - start],
            )
            field = self.fields[self.kinds[member]]
            problem = None
            if zlib.crc32(header) != self.headers[member]:
                problem = f"the header of {field!r} is not the one that was indexed"
            elif self.checksums is not None and zlib.crc32(data) != self.checksums[member]:
                problem = f"the content of {field!r} does not have its checksum"
            if problem is not None:
                raise DataError(
                    f"sample {self.key(row)!r}: {problem}: the shard is damaged, or another one than before."
                    " Open the data set again; if an index lies beside the shard, write that again, too"
                )
            sample[field] = data
        return sample

    def table(self) -> Table:
        """What ``of`` makes an index from again."""
        return {
            "size": self.size, "keys": self.keys.text, "key_ends": self.keys.ends, "fields": self.fields,
            "ends": self.ends, "offsets": self.offsets, "sizes": self.sizes, "headers": self.headers,
            "kinds": self.kinds, "checksums": self.checksums,
        }  # fmt: skip

    @classmethod
    def of(cls, table: Table) -> TarIndex:
        """An index from a file; DataError unless all of it lies within a shard of its size."""
        size, fields = table["size"], table["fields"]
        if type(size) is not int or type(fields) is not list or not all(type(f) is str for f in fields):
            raise DataError("size or fields are malformed")
        ends = counts(table, "ends")
        total = int(ends[-1])
        offsets = integers(table, "offsets", total, BLOCK, size)
        sizes = integers(table, "sizes", total, 0, size)
        if (offsets + sizes > size).any():
            raise DataError("a member lies beyond the end of the shard")
        headers = integers(table, "headers", total, 0, 0xFFFFFFFF)
        kinds = integers(table, "kinds", total, 0, len(fields) - 1)
        sums = None if table["checksums"] is None else integers(table, "checksums", total, 0, 0xFFFFFFFF)
        keys = Strings.read(table, "keys", "key_ends", len(ends))
        return cls(size, keys, fields, ends, (offsets, sizes, headers, kinds), sums)


def _crc(reader: Reader, offset: int, count: int) -> int:
    """The CRC-32 of data, read in parts."""
    value = 0
    for low in range(offset, offset + count, _CHUNK):
        (part,) = reader.read([(low, min(low + _CHUNK, offset + count))])
        value = zlib.crc32(part, value)
    return value
