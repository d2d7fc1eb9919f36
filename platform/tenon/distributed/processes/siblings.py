"""While ranks wait in ``MPI_Init``, notice that one of this host's has ended before it came there.

A script that fails before its ``import tenon`` has no hooks, and MPICH's launcher waits for it as the other
ranks do. They cannot look around meanwhile: mpi4py holds the interpreter's lock. So the first two ranks of a
host start a small process each (this file, without tenon, 15 ms), which asks Linux whether the launcher still
has all its children, says so if not, and asks the launcher to end the job. It ends with its rank. The second
one only speaks if the first rank is the one that is missing.

A job that ends there leaves MPICH's shared memory behind, a file of 4 MB, unless who ends it removes it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LAUNCHER = "hydra_pmi_proxy"
PERIOD = 0.1
SEGMENT = "/dev/shm/mpich_shm_"
LOOKS = 3
"""Looks in a row that must find a rank missing; twice as many for the second rank's process."""


@contextlib.contextmanager
def watching(facts: Any, environment: Mapping[str, str]) -> Iterator[None]:
    """Watch the ranks of this host inside the block, where the launcher is MPICH's on Linux."""
    channel = environment.get("PMI_FD", "")
    parent = os.getppid()
    if facts.local_rank > 1 or not channel.isdigit() or _text(f"/proc/{parent}/comm").strip() != LAUNCHER:
        yield
        return
    numbers = [parent, facts.local_size, facts.local_rank, facts.rank, facts.size, channel]
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, *map(str, numbers)],
        stdin=subprocess.PIPE,
        pass_fds=[int(channel)],
    )
    try:
        yield
    finally:
        watcher.communicate()  # It ends when its input does.


def missing_ranks(parent: int, local_size: int, local_rank: int, size: int) -> list[int] | None:
    """Ranks that are no living children of ``parent``; None if it is not for ``local_rank`` to say so.

    With several hosts it cannot be told which numbers belong here: the list is then empty.
    """
    children = _text(f"/proc/{parent}/task/{parent}/children").split()
    living = [child for child in children if _state(child) not in ("", "Z", "X")]
    if not children or len(living) >= local_size:
        return None
    if local_rank > 0 and any(_number(child, "MPI_LOCALRANKID") == 0 for child in living):
        return None
    if local_size < size:
        return []
    return sorted(set(range(size)) - {_number(child, "PMI_RANK") for child in living})


def remove_segments(parent: int) -> None:
    """Unlink the shared memory that the living children of ``parent`` map: their job is about to be ended."""
    for child in _text(f"/proc/{parent}/task/{parent}/children").split():
        for line in _text(f"/proc/{child}/maps").splitlines():
            path = line[line.find("/") :]
            if path.startswith(SEGMENT):  # one that is gone has " (deleted)" behind its name
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)


def _number(process: str, variable: str) -> int:
    """What the launcher told ``process`` in an environment variable; -1 if nothing."""
    for entry in _text(f"/proc/{process}/environ").split("\0"):
        name, _, value = entry.partition("=")
        if name == variable and value.isdigit():
            return int(value)
    return -1


def _state(process: str) -> str:
    return (_text(f"/proc/{process}/stat").rpartition(")")[2].split() or [""])[0]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def main() -> None:
    """Look until standard input ends."""
    parent, local_size, local_rank, rank, size, channel = map(int, sys.argv[1:])
    looks = 0
    while not select.select([sys.stdin], [], [], PERIOD)[0]:
        missing = missing_ranks(parent, local_size, local_rank, size)
        looks = looks + 1 if missing is not None else 0
        if missing is not None and looks >= LOOKS * (1 + local_rank):
            _end(parent, missing, rank, size, channel)
            return


def _end(parent: int, missing: list[int], rank: int, size: int, channel: int) -> None:
    specification = importlib.util.spec_from_file_location("report", Path(__file__).with_name("report.py"))
    assert specification is not None and specification.loader is not None
    report = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(report)
    names = f"rank {missing[0]}" if len(missing) == 1 else "ranks " + ", ".join(map(str, missing))
    what = f"cannot start: {names if missing else 'a rank of this host'} ended before `import tenon`"
    if report.Claim(f"parent-{parent}").take():
        hint = "Its own message is above. Hooks from the first line on: python -m tenon.distributed SCRIPT\n"
        text = report.describe_exit(rank, size, os.uname().nodename, None, what, 1, hint)
        os.write(2, text.encode())
        time.sleep(PERIOD)  # The launcher reads it before it ends all.
    remove_segments(parent)
    os.write(channel, b"cmd=abort exitcode=1\n")


if __name__ == "__main__":
    main()
