"""The owner of a run folder's lock: what a lock file says, and whether that job has ended (``lock.py``).

A lock file may be damaged, or written by anybody: what it says is not trusted to be of the right type, to be
a valid name of a file, or to be one line.
"""

from __future__ import annotations

import datetime
import getpass
import json
import os
import re
import socket
import time
from pathlib import Path
from typing import TypeAlias

from tenon.config import environment, process_environment
from tenon.distributed.processes.startup import LAUNCH, attempt
from tenon.errors import CheckpointError
from tenon.serialize.regular_files import open_regular

STALE = 120.0
"""Seconds without a renewal of the lock after which an owner on another host is considered dead."""
#: The content of a lock file.
Owner: TypeAlias = dict[str, object]
RETRIES = 20
"""How often a lock that cannot be read is read again, every 50 ms: it may be about to be written."""
_LONGEST = 1 << 16
_TOKEN = re.compile(r"[0-9a-f]{1,64}")


def read(path: Path) -> Owner | None:
    """The owner in a lock file; None if there is none, an empty one if the file is not ours or damaged."""
    for _ in range(RETRIES):
        try:
            with open_regular(path) as file:
                content = json.loads(file.read(_LONGEST))
        except FileNotFoundError:
            return {} if path.is_symlink() else None
        except CheckpointError:
            return {}
        except (ValueError, RecursionError):
            time.sleep(0.05)  # is being written, without links
            continue
        token = content.get("token") if isinstance(content, dict) else None
        return content if isinstance(token, str) and _TOKEN.fullmatch(token) else {}
    return {}


def identity(token: str) -> Owner:
    """This process as the owner of a lock."""
    variables = process_environment()
    return {
        "token": token,
        "owner": _user(),
        "host": socket.gethostname(),
        "process": os.getpid(),
        "started": _start_of(os.getpid()),
        "machine": _machine(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "launch": environment(LAUNCH) or "",
        "attempt": attempt(),
        "slurm_job": variables.get("SLURM_JOB_ID", ""),
        "slurm_restart": _number(variables.get("SLURM_RESTART_COUNT")),
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0


def _machine() -> str:
    """What tells the process numbers of this boot and container from others; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_of(process: int) -> str:
    """When a process started, in ticks since the boot; empty if there is none, or it is a zombie."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _is_hidden(process: int) -> bool:
    """Whether there is such a process, of another user, of which ``/proc`` tells nothing (``hidepid``)."""
    try:
        os.kill(process, 0)
    except PermissionError:
        return not os.path.exists(f"/proc/{process}")
    except (ProcessLookupError, OverflowError):
        return False
    return False


def is_gone(owner: Owner, former: str | None, age: float) -> bool:
    """Whether the owner of a lock that was last renewed ``age`` seconds ago has ended."""
    machine = _machine()
    if machine and owner.get("machine") == machine:
        process = owner.get("process")
        if not isinstance(process, int) or not _is_hidden(process):
            return not isinstance(process, int) or _start_of(process) != owner.get("started")
        return age > STALE
    if former is not None and owner.get("token") == former:
        return True
    mine = identity("")
    for same, count in (("launch", "attempt"), ("slurm_job", "slurm_restart")):
        before, after = owner.get(count), mine[count]
        if (
            mine[same]
            and owner.get(same) == mine[same]
            and isinstance(before, int)
            and isinstance(after, int)
            and before < after
        ):
            return True
    return age > STALE


def same_launch(owner: Owner) -> bool:
    """Whether the lock is of another attempt of this ``tenon launch``."""
    mine = environment(LAUNCH)
    return bool(mine) and owner.get("launch") == mine


def describe(owner: Owner) -> str:
    """The owner in a sentence, without what would not be printed in one line."""

    def text(key: str, unknown: str) -> str:
        return "".join(c for c in str(owner.get(key, unknown))[:80] if c.isprintable())

    return (
        f"{text('owner', 'an unknown user')}'s job on host {text('host', '?')} (process"
        f" {text('process', '?')}, since {text('time', '?')})"
    )


def is_here(owner: Owner) -> bool:
    """Whether the owner runs on this host and in this container."""
    return owner.get("machine") == _machine()
