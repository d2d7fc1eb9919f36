"""Where shards are: files, read in place, or any URL that fsspec can read; and lists of them from patterns.

Each kind of place has the same four methods: ``stat`` (size, and a stamp that changes with the content),
``reader`` (an open ``Reader``), ``fill`` (copy all bytes to a file) and ``small`` (a whole small file).
"""

from __future__ import annotations

import contextlib
import functools
import glob
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from tenon.data.streaming.byte_ranges import FileReader, Reader
from tenon.errors import CheckpointError, DataError
from tenon.serialize.limits import cut
from tenon.serialize.regular_files import open_regular

T = TypeVar("T")
#: File names of shards end in one of these.
SUFFIXES = (".tar", ".safetensors", ".parquet")
#: The end of the name of the index that lies beside a shard.
INDEX = ".index"
#: The most shards that a pattern may stand for.
_MOST = 1_000_000
#: How often a request is made, and the seconds before the second time, which double.
_ATTEMPTS, _PAUSE = 3, 0.2
#: Bytes of a request while a shard is copied, and how many are made at once.
_PART, _AT_ONCE = 1 << 23, 4
#: What identifies a version of a remote file, of the many names that file systems have for it.
_STAMPS = (
    "ETag", "etag", "md5Hash", "md5", "content_md5", "checksum", "generation", "version_id", "VersionId",
    "LastModified", "last_modified", "mtime", "modified", "updated", "created",
)  # fmt: skip


class Stat(NamedTuple):
    """The size of a shard, and a text that differs after a change of its content."""

    size: int
    stamp: str


class Place(Protocol):
    """How the shards of one kind of address are read."""

    remote: bool

    def stat(self, url: str) -> Stat:
        """Size and stamp of a shard."""

    def reader(self, url: str, size: int) -> contextlib.AbstractContextManager[Reader]:
        """Open a shard."""

    def fill(self, url: str, size: int, file: BinaryIO) -> None:
        """Copy a shard to ``file``."""

    def small(self, url: str) -> bytes | None:
        """The content of a file, or None if it cannot be read."""


class LocalFiles:
    """Files of this machine."""

    remote = False

    def stat(self, url: str) -> Stat:
        """Size and stamp of a shard."""
        with open_local(url) as file:
            found = os.fstat(file.fileno())
        return Stat(found.st_size, f"{found.st_ino} {found.st_mtime_ns}")

    @contextlib.contextmanager
    def reader(self, url: str, size: int) -> Iterator[Reader]:
        """Open a shard; DataError if it is not as long as ``size`` any more."""
        with open_local(url) as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise DataError(
                    f"it has changed since the data set was opened, from {size:,} to {found:,} bytes. Open"
                    " the data set again"
                )
            yield FileReader(file.fileno(), size)

    def fill(self, url: str, size: int, file: BinaryIO) -> None:
        """No effect: a file is read in place."""

    def small(self, url: str) -> bytes | None:
        """The content of a file, or None if there is none."""
        try:
            with open_local(url) as file:
                return file.read()
        except DataError:
            return None


class RemoteFiles:
    """Files that fsspec reads, with the options of the file system."""

    remote = True

    def __init__(self, options: Mapping[str, object] | None) -> None:
        self.options = dict(options or {})

    def system(self, url: str) -> tuple[Any, str]:  # fsspec has no types
        """The file system of a URL, and the path in it. A forked process gets one of its own."""
        try:
            import fsspec
        except ImportError as error:
            raise DataError(
                f"{url} needs fsspec: pip install 'tenon-platform[streaming]'. Paths without :// do not."
            ) from error
        try:
            system, path = fsspec.core.url_to_fs(url, **self.options)
        except (ImportError, ValueError) as error:  # the package of a protocol; a protocol that nobody knows
            raise DataError(f"{url} cannot be read by fsspec: {cut(error)}") from error
        return system, path

    def stat(self, url: str) -> Stat:
        """Size and stamp of a shard."""
        system, path = self.system(url)
        info = _retried(url, "asking for its size", lambda: system.info(path))
        if info.get("size") is None:
            raise DataError(
                f"{url}: the server does not state its size, so that its samples cannot be read at random."
                " Copy the shards to disk, or serve them with Content-Length."
            )
        return Stat(int(info["size"]), " ".join(f"{key}={info[key]}" for key in _STAMPS if info.get(key)))

    @contextlib.contextmanager
    def reader(self, url: str, size: int) -> Iterator[Reader]:
        """Open a shard."""
        system, path = self.system(url)
        yield RemoteReader(url, system, path, size)

    def fill(self, url: str, size: int, file: BinaryIO) -> None:
        """Copy a shard to ``file``, a few requests at a time."""
        system, path = self.system(url)
        reader = RemoteReader(url, system, path, size)
        for start in range(0, size, _PART * _AT_ONCE):
            stop = min(start + _PART * _AT_ONCE, size)
            parts = [(low, min(low + _PART, stop)) for low in range(start, stop, _PART)]
            file.writelines(reader.read(parts))

    def small(self, url: str) -> bytes | None:
        """The content of a file, or None if it cannot be read: what stops this stops the shards, too."""
        system, path = self.system(url)
        try:
            content: bytes = system.cat_file(path)
        except Exception:  # each file system has errors of its own, also for a file that is not there
            return None
        return content

    def listed(self, pattern: str) -> list[str]:
        """The URLs that match ``pattern``."""
        system, path = self.system(pattern)
        found = _retried(pattern, "listing", lambda: system.glob(path))
        return [system.unstrip_protocol(each) for each in sorted(found)]


class RemoteReader:
    """The bytes of a remote file, by requests for ranges."""

    def __init__(self, url: str, system: Any, path: str, size: int) -> None:  # fsspec has no types
        self.url, self.system, self.path, self.size = url, system, path, size

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each range, requested at once where the file system can do that."""
        starts, stops = [low for low, _ in ranges], [high for _, high in ranges]
        paths = [self.path] * len(ranges)
        read = functools.partial(self.system.cat_ranges, paths, starts, stops, on_error="raise")

        def complete() -> list[bytes]:
            parts: list[bytes] = [bytes(part) for part in read()]
            for (low, high), part in zip(ranges, parts, strict=True):
                if len(part) > high - low and (low, len(part)) != (0, self.size):
                    raise DataError(
                        f"{self.url}: the server sent {len(part):,} bytes where {high - low:,} were"
                        " requested: it does not support ranges. Copy the shards to disk."
                    )
                if len(part) < high - low:
                    raise ConnectionError(f"{len(part):,} bytes came of {high - low:,} at byte {low:,}")
            return [part[: high - low] for (low, high), part in zip(ranges, parts, strict=True)]

        return _retried(self.url, "reading", complete)


def _retried(url: str, what: str, request: Callable[[], T]) -> T:
    """The result of ``request``, made again after an error that may pass."""
    for attempt in itertools.count(1):
        try:
            return request()
        except DataError:
            raise
        except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
            raise DataError(f"{url}: {what} failed: {type(error).__name__}: {cut(error)}") from error
        except Exception as error:  # each file system has errors of its own
            if attempt == _ATTEMPTS:
                raise DataError(
                    f"{url}: {what} failed {attempt} times, the last time with {type(error).__name__}:"
                    f" {cut(error)}. Check the address and the network, then resume."
                ) from error
            time.sleep(_PAUSE * 2 ** (attempt - 1))
    raise AssertionError  # the loop does not end


def open_local(path: str) -> BinaryIO:
    """Open a file to read; DataError if that fails, also for a pipe, which would block."""
    try:
        return open_regular(path)
    except CheckpointError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error


def place_of(url: str, remote: RemoteFiles) -> Place:
    """How ``url`` is read."""
    return remote if "://" in url or "::" in url else LocalFiles()


def suffix_of(url: str) -> str:
    """The end of a shard's name, which is its format; DataError if it is none of the known ones."""
    name = url.partition("?")[0] if "://" in url else url
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    compressed = name.endswith((".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"))
    raise DataError(
        f"{url}: shards end in {', '.join(SUFFIXES)}."
        + (" A compressed archive cannot be read at random: decompress it." if compressed else "")
    )


def index_beside(url: str) -> str:
    """The address of the index beside a shard."""
    name, mark, query = url.partition("?") if "://" in url else (url, "", "")
    return f"{name}{INDEX}{mark}{query}"


def expanded(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], remote: RemoteFiles
) -> list[str]:
    """The shards that ``urls`` stand for: a folder for the shards in it, ``{000..127}``, ``{a,b}``, ``*``."""
    given = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    shards: list[str] = []
    for each in given:
        for url in braces(os.fspath(each)):
            shards += _matches(url, remote)
            if len(shards) > _MOST:
                raise DataError(f"{os.fspath(each)!r:.200} stands for more than {_MOST:,} shards.")
    if not shards:
        raise DataError("no shards were given. Pass a path or URL, a pattern, a folder, or a list of them.")
    return shards


def _matches(url: str, remote: RemoteFiles) -> list[str]:
    """The shards that a URL without braces stands for, in order of their names."""
    if place_of(url, remote).remote:
        found = remote.listed(url) if any(mark in url.partition("?")[0] for mark in "*[") else [url]
    elif os.path.isdir(url):
        found = sorted(os.path.join(url, name) for name in os.listdir(url) if name.endswith(SUFFIXES))
    else:
        found = sorted(glob.glob(url)) if glob.has_magic(url) and not os.path.exists(url) else [url]
    if not found:
        raise DataError(f"{url} has no shards: no file with one of the endings {', '.join(SUFFIXES)}.")
    return found


def braces(pattern: str) -> Iterator[str]:
    """Expand braces as a shell does, up to one million texts.

    >>> list(braces("s-{08..10}.{a,b}"))
    ['s-08.a', 's-08.b', 's-09.a', 's-09.b', 's-10.a', 's-10.b']
    """
    parts: list[Sequence[str]] = []
    for i, part in enumerate(re.split(r"\{([^{}]*)\}", pattern)):
        numbers = re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", part) if i % 2 else None
        if numbers is not None:
            low, high = map(int, numbers.groups())
            if high - low >= _MOST:
                raise DataError(f"{pattern!r:.200} stands for more than {_MOST:,} shards.")
            parts.append([f"{n:0{len(numbers[1])}}" for n in range(low, high + 1)])
        elif i % 2:
            parts.append(part.split(",") if "," in part else [f"{{{part}}}"])
        else:
            parts.append([part])
    return map("".join, itertools.product(*parts))
