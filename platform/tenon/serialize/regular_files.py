"""Open files to read: pipes and devices, which could block a reader or have no end, are refused."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO, cast

from tenon.errors import CheckpointError


def open_regular(path: str | os.PathLike[str], mode: str = "rb") -> BinaryIO:
    """Open the file at ``path``; CheckpointError if it is there, but not a regular file."""
    return cast(BinaryIO, open(path, mode, opener=_opener))


def _opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # does not wait for a pipe's writer
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):  # Python's own error says that it is a folder
        os.close(descriptor)
        raise CheckpointError(
            f"cannot read {os.fspath(path)!r}: it is not a regular file. Copy what it holds to one."
        )
    return descriptor
