"""Check that only this account, and root, can put files into a folder.

Whoever may write to a parent folder can replace the folders in it. So all parents are checked, up to the root
of the file system: who owns them, and who else may write to them. In a folder with the sticky bit, such as
``/tmp``, others cannot replace our files. A group may write to a folder if it is the user's private group,
which has the user's name and no other members.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

try:
    import grp
    import pwd
except ImportError:  # not a POSIX system, where the owner of files is no number
    grp = pwd = None  # type: ignore[assignment]


def make(folder: Path) -> None:
    """Create ``folder`` and what is missing above it, for this account alone."""
    for each in (*reversed(folder.parents), folder):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def problem(folder: Path) -> str:
    """Return who else could put files into ``folder``; empty if nobody can."""
    if pwd is None:
        return ""
    place = Path(os.path.realpath(folder))
    trusted = (os.geteuid(), 0)
    for each in (place, *place.parents):
        try:
            status = each.stat()
        except OSError as error:
            return f"{each} cannot be read: {error.strerror or error}"
        if status.st_uid not in trusted:
            return f"{each} belongs to another user"
        if status.st_mode & stat.S_ISVTX and each != place:
            continue
        if status.st_mode & stat.S_IWOTH:
            return f"{each} can be written by everyone"
        if status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid):
            return f"{each} can be written by its group (run chmod g-w on it)"
    return ""


def _is_own_group(group: int) -> bool:
    """Whether a group has this user's name and no other member."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}
