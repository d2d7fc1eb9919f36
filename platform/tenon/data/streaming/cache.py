"""A folder of copies of shards, bounded in bytes, which the processes of a host share.

A copy is written to ``NAME.part``, which is as long as the shard from the beginning, and renamed once it is
complete. So the sizes of all files are what is used and what is promised, and ``make room, then promise``
under one lock keeps the bound, however many processes download. Locks are those of the kernel (``flock``): a
process that is killed leaves none, and its part is taken over or deleted by the next one. Copies are deleted
in the order of their last use, but for those that are being read: a deleted file that is open would still
take space.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import warnings
from collections.abc import Callable, Iterator
from typing import BinaryIO

from tenon.data.streaming.byte_ranges import FileReader
from tenon.errors import DataError, TenonWarning

_PART = ".part"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: How often a copy is opened again that others delete at once, before it is read over the network.
_TIMES = 3
#: Writes a shard of the stated size to a file.
Fill = Callable[[BinaryIO], None]


class Cache:
    """The copies in the folder ``path``, of at most ``limit`` bytes together."""

    def __init__(self, path: str, limit: int) -> None:
        self.path, self.limit = os.path.abspath(path), limit
        self._shards = os.path.join(self.path, "shards")
        self._warned = False
        try:
            os.makedirs(self._shards, exist_ok=True)
            with self._locked():
                pass
        except OSError as error:
            raise DataError(
                f"the cache folder {path} cannot be made or written: {error.strerror}. Choose another"
                " cache_dir."
            ) from error

    @contextlib.contextmanager
    def reader(self, name: str, size: int, fill: Fill) -> Iterator[FileReader | None]:
        """The copy called ``name``, which ``fill`` writes if there is none; None if there is no room for
        it."""
        for _ in range(_TIMES):
            file = self._open(name, size)
            if file is None:
                if not self._download(name, size, fill):
                    break
                continue
            try:
                yield FileReader(file, size)
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open, too
                os.close(file)
            return
        yield None

    def _warn(self, name: str, size: int) -> None:
        """Say once that a shard is not kept, and will not be."""
        if self._warned:
            return
        self._warned = True
        free = shutil.disk_usage(self.path).free
        warnings.warn(
            f"the cache {self.path} has no room for {name} of {size:,} bytes: its bound is {self.limit:,}"
            f" bytes, and {free:,} are free on its disk. Such shards are read over the network instead.",
            TenonWarning,
            stacklevel=2,
        )

    def discard(self, name: str) -> None:
        """Delete a copy that is damaged."""
        with self._locked(), contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._shards, name))

    def used(self) -> int:
        """The bytes of all copies, and of those that are being written."""
        return sum(size for _, size, _ in self._files())

    def _open(self, name: str, size: int) -> int | None:
        """Open a copy, locked against deletion; None if there is none, or it is not complete."""
        path = os.path.join(self._shards, name)
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
            found = os.fstat(file)
            if found.st_nlink and found.st_size == size and stat.S_ISREG(found.st_mode):
                with contextlib.suppress(PermissionError):  # of another user: it is deleted earlier
                    os.utime(file)
                return file
            if found.st_nlink:  # cut off
                self.discard(name)
        except BaseException:
            os.close(file)
            raise
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)
        return None

    def _download(self, name: str, size: int, fill: Fill) -> bool:
        """Write the copy called ``name``, or wait for another process that does; False if there is no
        room."""
        path = os.path.join(self._shards, name)
        with self._part(path + _PART) as file:
            if os.path.exists(path):  # another process was faster
                _drop(file, path + _PART)
                return True
            try:
                if not self._reserve(file, name + _PART, size):
                    _drop(file, path + _PART)
                    return False
                with open(os.dup(file), "r+b") as stream:
                    fill(stream)
                    written = stream.tell()
                if written != size:
                    raise DataError(f"{written:,} bytes came instead of {size:,}")
                os.fsync(file)
                with self._locked():  # else who counts could see neither name
                    os.rename(path + _PART, path)
            except OSError as error:
                _drop(file, path + _PART)
                if error.errno in _FULL:
                    self._warn(name, size)
                    return False
                raise DataError(
                    f"its copy in the cache {self.path} cannot be written: {error.strerror or error}. Check"
                    " the disk, or choose another cache_dir"
                ) from error
            except BaseException:
                _drop(file, path + _PART)
                raise
            return True

    @contextlib.contextmanager
    def _part(self, path: str) -> Iterator[int]:
        """Create or take over the file of an incomplete copy, locked; waits for the process that writes
        it."""
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is(file, path):
                    yield file
                    return
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
                os.close(file)

    def _reserve(self, file: int, name: str, size: int) -> bool:
        """Make ``file`` as long as the copy will be, deleting others as the bound and the disk require."""
        with self._locked():
            files = sorted((used, found, each) for each, found, used in self._files() if each != name)
            total = sum(found for _, found, _ in files)
            if size > self.limit:
                self._warn(name.removesuffix(_PART), size)
                return False
            victims = iter(files)
            while total + size > self.limit:
                freed = self._delete_next(victims)
                if freed is None:
                    return False
                total -= freed
            while True:
                try:
                    os.ftruncate(file, 0)
                    _allocate(file, size)
                    return True
                except OSError as error:  # the disk is full, with files of others
                    os.ftruncate(file, 0)
                    if error.errno not in _FULL or self._delete_next(victims) is None:
                        raise

    def _delete_next(self, files: Iterator[tuple[float, int, str]]) -> int | None:
        """Delete the next file that nobody reads or writes; its size, or None if there is none."""
        for _, size, name in files:
            path = os.path.join(self._shards, name)
            with contextlib.suppress(OSError):
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if _is(file, path):
                        os.unlink(path)
                        return size
                finally:
                    fcntl.flock(file, fcntl.LOCK_UN)
                    os.close(file)
        return None

    def _files(self) -> Iterator[tuple[str, int, float]]:
        """Name, size and time of last use of every file."""
        with os.scandir(self._shards) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    yield entry.name, found.st_size, found.st_mtime

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Only one process at a time decides what is deleted and what there is room for."""
        file = os.open(os.path.join(self.path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


def _allocate(file: int, size: int) -> None:
    """Make an empty file as long as ``size``, with the room on disk where the file system can promise it."""
    try:
        if size:
            os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        os.ftruncate(file, size)


def _drop(file: int, path: str) -> None:
    """Delete the open ``file`` if it is still the one at ``path``, and was not renamed."""
    if _is(file, path):
        os.unlink(path)


def _is(file: int, path: str) -> bool:
    """Whether the open ``file`` is the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
