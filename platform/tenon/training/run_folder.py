"""Check a run folder that a job is about to write to: it may have been made by another account.

A link there leads to where its maker wants: metrics would be appended to a file of this account, or its other
checkpoints deleted as surplus ones. So links that another account has placed are refused, as Linux does in
shared temporary folders. So are pipes, which would block, and files and folders that cannot be written to:
such a run would fail after its first epoch.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tenon.errors import TrainingError

#: What a run writes to for as long as it lasts: the name, and whether it is a folder.
_WRITTEN = {"metrics.jsonl": False, "checkpoints": True}
#: What to do instead.
ADVICE = (
    "Copy the checkpoint to a folder of your own to resume it there, or choose another with --run FOLDER."
)


def check(folder: Path) -> None:
    """TrainingError if ``folder`` has links of other accounts, or a run cannot write what it has to."""
    try:
        for path in (folder, *_entries(folder, 2)):
            _check_link(folder, path)
        for name, is_folder in _WRITTEN.items():
            _check_writable(folder, name, is_folder)
    except OSError as error:
        raise TrainingError(
            f"cannot use the run folder {folder}: {error.strerror} ({error.filename}). {ADVICE}"
        ) from error


def _entries(folder: Path, depth: int) -> Iterator[Path]:
    """The entries of ``folder``, and of its folders, ``depth`` levels of them."""
    try:
        opened = os.scandir(folder)
    except FileNotFoundError:  # deleted meanwhile
        return
    with opened as entries:
        for entry in entries:
            yield Path(entry.path)
            if depth > 1 and entry.is_dir(follow_symlinks=False):
                yield from _entries(Path(entry.path), depth - 1)


def _check_link(folder: Path, path: Path) -> None:
    """TrainingError if ``path`` is a link that neither this account nor root has placed."""
    if not path.is_symlink():
        return
    try:
        owner = os.lstat(path).st_uid
        target = os.readlink(path)
    except FileNotFoundError:
        return
    if owner not in (0, os.geteuid()):
        where = "is" if path == folder else f"has {os.path.relpath(path, folder)!r},"
        raise TrainingError(
            f"the run folder {folder} {where} a link to {target!r} that another account (user {owner}) has"
            f" placed there. It is not followed. {ADVICE}"
        )


def _check_writable(folder: Path, name: str, is_folder: bool) -> None:
    """TrainingError unless ``name`` is missing, or is of its kind and this account can write to it."""
    path = folder / name
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return  # a link to nothing as well: what it names is created
    kind, of_kind = ("folder", stat.S_ISDIR(mode)) if is_folder else ("regular file", stat.S_ISREG(mode))
    if not of_kind:
        raise TrainingError(f"{name} in the run folder {folder} is not a {kind}. {ADVICE}")
    if not os.access(
        path, os.W_OK | (os.X_OK if is_folder else 0), effective_ids=os.access in os.supports_effective_ids
    ):
        raise TrainingError(
            f"{name} in the run folder {folder} cannot be written to by this account. {ADVICE}"
        )
