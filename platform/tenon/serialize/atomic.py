"""Atomic file writes: a file is replaced completely or not at all.

The bytes go to a hidden file in the same folder, are flushed and synced to the disk, and only then
renamed to the target; the folder is synced last, so that the rename survives a power failure. A process
killed in the middle leaves the old file intact, and a hidden file that the next save to the same name
removes: a lock, released with its process, distinguishes a dead writer from a slow one.

Next: ``torch_zip.py`` and ``tensors.py`` write through ``replacing``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tenon.errors import CheckpointWriteError

try:
    import fcntl
except ImportError:  # not a POSIX system: abandoned files are then left to the user
    fcntl = None  # type: ignore[assignment]

#: Youngest age in seconds at which an unlocked temporary file counts as abandoned.
ABANDONED_AFTER = 60.0

_TEMPORARY = re.compile(r"(.*\.)?[0-9a-f]{12}\.tmp")
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary binary file that replaces ``path`` on success and is deleted on an exception.

    If ``path`` is a symbolic link, the file that it points to is replaced. A target that is not a regular
    file, as ``/dev/null`` or a named pipe, is written to directly.
    """
    target = Path(os.path.realpath(path))
    mode = _mode_of(target)
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "cannot save over a folder", os.fspath(path))
    if mode is not None and not stat.S_ISREG(mode):
        with _convert_disk_errors(path, untouched=False), open(target, "wb") as file:
            yield file
        return
    with _convert_disk_errors(path):
        remove_abandoned(target.parent, f".{target.name[:200]}.", ABANDONED_AFTER)
        temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}.tmp")
        try:
            descriptor = os.open(
                temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666
            )
            with open(descriptor, "wb") as file:
                _lock(file)
                if mode is not None:
                    os.chmod(temporary, stat.S_IMODE(mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        _sync_folder(target.parent)


@contextlib.contextmanager
def _convert_disk_errors(path: str | os.PathLike[str], *, untouched: bool = True) -> Iterator[None]:
    """Convert an ``OSError`` of the disk to ``CheckpointWriteError``, with the file's state and advice."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError):
        raise  # Python's message names the path and the reason
    except OSError as error:
        reason = error.strerror or str(error)
        folder = os.path.dirname(os.path.abspath(path))
        advice = "Check the disk, then save again."
        if error.errno in _NO_ROOM:
            advice = (
                f"{_free_space(folder)}Make room (or raise the file size limit), or save to another folder."
            )
        unchanged = " Whatever was saved there before is untouched." if untouched else ""
        raised = CheckpointWriteError(f"could not write {os.fspath(path)!r}: {reason}.{unchanged} {advice}")
        raised.errno, raised.filename, raised.strerror = error.errno, os.fspath(path), error.strerror
        raise raised from error


def _free_space(folder: str) -> str:
    """A sentence with the free space of the disk of ``folder``; empty if unknown."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    return f"{free / 1e6:,.1f} MB are free in {folder!r}. "


def _mode_of(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _lock(file: BinaryIO) -> bool:
    """Lock ``file`` until it is closed; False if another process holds it or locks are unsupported."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by a living writer, or a file system without locks
        return False
    return True


def remove_abandoned(folder: Path, prefix: str, older_than: float) -> None:
    """Delete files ``prefix*`` of killed writers; those of running writers are locked."""
    for name in os.listdir(folder):
        if not _TEMPORARY.fullmatch(name.removeprefix(prefix)) or not name.startswith(prefix):
            continue
        leftover = folder / name
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if time.time() - leftover.stat().st_mtime < older_than:
                continue
            if not stat.S_ISREG(leftover.lstat().st_mode):
                continue  # a pipe would block
            with open(leftover, "rb") as file:
                if _lock(file):
                    os.unlink(leftover)


def _sync_folder(folder: Path) -> None:
    """Sync ``folder`` so that a rename is durable; skipped on systems that cannot open folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
