"""``StreamingDataset``: the samples of many shards, each of which can be read by its index."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon.data.dataset import Dataset
from tenon.data.streaming.byte_ranges import Reader
from tenon.data.streaming.cache import Cache
from tenon.data.streaming.decoding import Decode, decoded
from tenon.data.streaming.indexing import Index, Indices, name_of, named, scan
from tenon.data.streaming.locations import Place, RemoteFiles, Stat, expanded, place_of, suffix_of
from tenon.errors import DataError

#: The most shards of a batch, or indices, that are read at once over a network.
_AT_ONCE = 8
#: By default, the most bytes in a cache.
_CACHE_SIZE = 1 << 36


@dataclass(slots=True)
class _Shard:
    """A shard: where it is, which version, and what is in it."""

    url: str
    place: Place
    stat: Stat
    name: str
    index: Index


class StreamingDataset(Dataset[Any]):  # of dicts, tuples or what ``transform`` returns
    """Samples in tar, safetensors or Parquet shards, on disk or at any URL of fsspec, in any order.

    ``urls`` is a path or URL, a folder, a pattern (``train-{000..127}.tar``, ``*``), or a list of them. A
    sample is a dict of decoded fields: of a tar shard, WebDataset's ``{"__key__": "000123", "jpg": ...,
    "cls": ...}``; of a safetensors shard, row ``i`` of every tensor; of a Parquet shard, row ``i``. With
    ``fields=("jpg;png", "cls")`` it is a tuple of these, and others are not read. ``decode`` maps fields or
    endings to functions of bytes (None: leave the bytes), or is one function ``(field, bytes)``.
    ``transform`` gets each sample.

    Shards at URLs, also ``file://`` ones, are copied whole to ``cache_dir``, which holds at most
    ``cache_size`` bytes (64 GiB) and may be shared by processes, if they all fit, and otherwise read sample
    by sample: ``fetch="shard"`` or ``"sample"`` chooses. Paths are read in place. An index of each shard is
    taken from ``cache_dir``, or from beside the shard, or built by one scan.

    The data set is a map from numbers to samples: shuffling, ranks and resuming are the business of samplers
    and ``DataLoader``. DataError names the shard and sample of what cannot be read.
    """

    def __init__(
        self,
        urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        fields: Sequence[str] | None = None,
        decode: Decode | None = None,
        transform: Callable[[Any], Any] | None = None,  # of samples, whose types are those of their fields
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int = _CACHE_SIZE,
        fetch: str | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        _check(fields, decode, cache_dir, cache_size, fetch)
        self.fields = None if fields is None else [field.split(";") for field in fields]
        self._wanted = None if fields is None else [name for names in self.fields or () for name in names]
        self.decode, self.transform = decode, transform
        remote = RemoteFiles(storage_options)
        addresses = expanded(urls, remote)
        self._cache = None if cache_dir is None else Cache(os.fspath(cache_dir), int(cache_size))
        indices = Indices(None if self._cache is None else self._cache.path)
        placed = [(url, place_of(url, remote)) for url in addresses]
        for url, _ in placed:
            suffix_of(url)
        stats = list(_mapped(lambda each: _stat(*each), placed))
        away = {
            name_of(url, s): s.size for (url, place), s in zip(placed, stats, strict=True) if place.remote
        }
        fits = self._cache is not None and sum(away.values()) <= self._cache.limit
        self.fetch = fetch or ("shard" if fits else "sample")

        def opened(each: tuple[tuple[str, Place], Stat]) -> _Shard:
            (url, place), stat = each
            with named(url):
                index = indices.find(url, place, stat)
                if index is None:
                    index = self._scan(url, place, stat)
                    indices.keep(url, stat, index)
            return _Shard(url, place, stat, name_of(url, stat), index)

        self._shards = list(_mapped(opened, list(zip(placed, stats, strict=True))))
        #: The number of samples in each shard.
        self.shard_lengths = [len(shard.index) for shard in self._shards]
        self._ends = np.cumsum(self.shard_lengths, dtype=np.int64)
        #: Of names, sizes and numbers of samples of the shards: states of a loader are of one fingerprint.
        self.fingerprint = _fingerprint(self._shards)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:  # a dict or tuple, or what ``transform`` returns
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:  # likewise
        """The samples at ``indices``; those of a shard are read together, and shards of a network at once."""
        numbers, rows = self._places(indices)
        by_shard: dict[int, list[int]] = {}
        for position, number in enumerate(numbers):
            by_shard.setdefault(number, []).append(position)
        samples: list[dict[str, object]] = [{}] * len(indices)

        def read(item: tuple[int, list[int]]) -> None:
            number, positions = item
            shard = self._shards[number]
            with named(shard.url):
                found = self._contents(shard, [rows[position] for position in positions])
            for position, sample in zip(positions, found, strict=True):
                samples[position] = sample

        items = list(by_shard.items())
        if any(self._shards[number].place.remote for number in by_shard):
            list(_mapped(read, items))
        else:
            for item in items:
                read(item)
        return [self._finished(int(i), sample) for i, sample in zip(indices, samples, strict=True)]

    def locate(self, index: int) -> tuple[str, str]:
        """Return the shard of a sample, and its key in it, for messages."""
        (number,), (row,) = self._places([index])
        shard = self._shards[number]
        return shard.url, shard.index.key(row)

    def _places(self, indices: Sequence[int]) -> tuple[list[int], list[int]]:
        """The shards of samples, by number, and their rows there."""
        found, total = np.asarray(indices, np.int64), len(self)
        wrong = (found < -total) | (found >= total)
        if wrong.any():
            raise IndexError(f"sample {found[wrong][0]} is out of range: there are {total:,}")
        found = found % total
        numbers = np.searchsorted(self._ends, found, side="right")
        starts = self._ends[numbers] - np.asarray(self.shard_lengths, np.int64)[numbers]
        return numbers.tolist(), (found - starts).tolist()

    def _scan(self, url: str, place: Place, stat: Stat) -> Index:
        """Build the index of a shard, from its copy if there is to be one."""
        suffix = suffix_of(url)
        if place.remote and self.fetch == "shard" and self._cache is not None:
            with self._cache.reader(name_of(url, stat), stat.size, self._fill(url, place, stat)) as copy:
                if copy is not None:
                    return scan(copy, suffix, checksums=True)
        with place.reader(url, stat.size) as reader:
            return scan(reader, suffix, remote=place.remote)

    def _fill(self, url: str, place: Place, stat: Stat) -> Callable[[Any], None]:  # of a binary file
        """What copies a shard, if it is still the version that was indexed."""

        def fill(file: Any) -> None:  # likewise
            now = place.stat(url)
            if now != stat:
                raise DataError(
                    f"it has changed since the data set was opened, from {stat.size:,} bytes"
                    f" ({stat.stamp or 'no stamp'}) to {now.size:,} ({now.stamp or 'no stamp'}). Open the"
                    " data set again"
                )
            place.fill(url, stat.size, file)

        return fill

    def _contents(self, shard: _Shard, rows: list[int]) -> list[dict[str, object]]:
        """The fields of samples of a shard, as bytes; a copy that turns out to be damaged is made once
        more."""
        if shard.place.remote and self.fetch == "shard" and self._cache is not None:
            for attempt in range(2):
                fill = self._fill(shard.url, shard.place, shard.stat)
                with self._cache.reader(shard.name, shard.stat.size, fill) as copy:
                    if copy is None:
                        break
                    try:
                        return self._read(shard, copy, rows)
                    except DataError:
                        self._cache.discard(shard.name)
                        if attempt:
                            raise
        with shard.place.reader(shard.url, shard.stat.size) as reader:
            return self._read(shard, reader, rows)

    def _read(self, shard: _Shard, reader: Reader, rows: list[int]) -> list[dict[str, object]]:
        return shard.index.read(reader, rows, self._wanted)

    def _finished(self, index: int, contents: dict[str, Any]) -> Any:  # bytes and arrays in; a sample out
        """Decode a sample, choose its fields, and transform it."""
        for field, value in contents.items():
            if isinstance(value, bytes):
                try:
                    contents[field] = decoded(field, value, self.decode)
                except DataError as error:
                    url, key = self.locate(index)
                    raise DataError(
                        f"{url}, sample {key!r} (number {index}): {str(error).rstrip('.')}."
                    ) from error
        sample: dict[str, object] | tuple[object, ...] = contents
        if self.fields is not None:
            sample = tuple(self._field(index, contents, names) for names in self.fields)
        return sample if self.transform is None else self.transform(sample)

    def _field(self, index: int, contents: dict[str, Any], names: list[str]) -> Any:  # the field's own type
        for name in names:
            if name in contents:
                return contents[name]
        url, key = self.locate(index)
        raise DataError(
            f"{url}, sample {key!r} (number {index}) has no field {' or '.join(map(repr, names))}."
        )


def _fingerprint(shards: Sequence[_Shard]) -> str:
    """A text that differs if shards do, wherever they are."""
    rows = [(os.path.basename(s.url.partition("?")[0]), s.stat.size, len(s.index)) for s in shards]
    return hashlib.sha256(repr(rows).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _stat(url: str, place: Place) -> Stat:
    with named(url):
        return place.stat(url)


def _mapped(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:  # of any items
    """``map``, in threads: most of the time is waiting for a network."""
    if len(items) < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "tenon-streaming") as pool:
        yield from pool.map(function, items)


def _check(
    fields: Sequence[str] | None,
    decode: Decode | None,
    cache_dir: str | os.PathLike[str] | None,
    cache_size: int,
    fetch: str | None,
) -> None:
    """Raise DataError for options that are wrong or exclude each other."""
    if fields is not None and (isinstance(fields, str) or not fields):
        raise DataError(
            f'StreamingDataset: fields is {fields!r}. Pass a sequence of names, as ("jpg", "cls").'
        )
    repeated = [] if fields is None else [name for name, n in Counter(fields).items() if n > 1]
    if repeated:
        raise DataError(f"StreamingDataset: fields has {repeated[0]!r} twice.")
    if decode is not None and not callable(decode) and not isinstance(decode, Mapping):
        raise DataError(f"StreamingDataset: decode is a {type(decode).__name__}. Pass a dict or a function.")
    if fetch not in (None, "shard", "sample"):
        raise DataError(f'StreamingDataset: fetch={fetch!r} is none of None, "shard" and "sample".')
    if fetch == "shard" and cache_dir is None:
        raise DataError('StreamingDataset: fetch="shard" copies shards to cache_dir, which is None.')
    if isinstance(cache_size, bool) or not isinstance(cache_size, int | np.integer) or cache_size < 0:
        raise DataError(f"StreamingDataset: cache_size={cache_size!r} is not a number of bytes.")
