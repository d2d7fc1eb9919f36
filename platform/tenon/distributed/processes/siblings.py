"""While ranks wait in ``MPI_Init``, detect that another rank of this host has ended before it got there.

A script that fails before its ``import tenon`` has no failure hooks, and MPICH's launcher and the other ranks
wait for it. Those ranks cannot check themselves: mpi4py holds the interpreter's lock. So the first two ranks
of a host start a small process each (this file, without tenon, 15 ms), which checks with Linux whether the
launcher still has all its children; if not, it reports that and asks the launcher to abort the job. It ends
with its rank. The second rank's process reports only if the first rank is missing.

A job that ends in ``MPI_Init`` leaves MPICH's shared memory, a file of 4 MB, unless it is removed here.
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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.distributed.processes.launcher import RankFacts

LAUNCHER = "hydra_pmi_proxy"
PERIOD = 0.1
SEGMENT = "/dev/shm/mpich_shm_"
CHECKS = 3
"""Number of consecutive checks that must find a rank missing; twice as many in the second rank's process."""


@contextlib.contextmanager
def watching(facts: RankFacts, environment: Mapping[str, str]) -> Iterator[None]:
    """Watch the ranks of this host inside the block, if MPICH's launcher started them on Linux."""
    channel = environment.get("PMI_FD", "")
    parent = os.getppid()
    if (
        facts.local_rank > 1
        or not channel.isdigit()
        or _read_text(f"/proc/{parent}/comm").strip() != LAUNCHER
    ):
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
        watcher.communicate()  # Closes its standard input, at whose end it exits.


def missing_ranks(parent: int, local_size: int, local_rank: int, size: int) -> list[int] | None:
    """Ranks that are not living children of ``parent``; None if all are, or another rank is to report.

    In a job on several hosts it is unknown which ranks belong to this one: the list is then empty.
    """
    children = _read_text(f"/proc/{parent}/task/{parent}/children").split()
    living = [child for child in children if _state(child) not in ("", "Z", "X")]
    if not children or len(living) >= local_size:
        return None
    if local_rank > 0 and any(_number(child, "MPI_LOCALRANKID") == 0 for child in living):
        return None
    if local_size < size:
        return []
    return sorted(set(range(size)) - {_number(child, "PMI_RANK") for child in living})


def remove_segments(parent: int) -> None:
    """Unlink MPICH's shared memory of the living children of ``parent``, whose job is about to be aborted."""
    for child in _read_text(f"/proc/{parent}/task/{parent}/children").split():
        for line in _read_text(f"/proc/{child}/maps").splitlines():
            path = line[line.find("/") :]
            if path.startswith(SEGMENT):  # the name of an unlinked one ends in " (deleted)"
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)


def _number(process: str, variable: str) -> int:
    """The number in an environment variable of ``process``; -1 if it is unset or not a number."""
    for entry in _read_text(f"/proc/{process}/environ").split("\0"):
        name, _, value = entry.partition("=")
        if name == variable and value.isdigit():
            return int(value)
    return -1


def _state(process: str) -> str:
    """The letter of the process's state, such as Z for a zombie; empty if there is no such process."""
    return (_read_text(f"/proc/{process}/stat").rpartition(")")[2].split() or [""])[0]


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def main() -> None:
    """Check for missing ranks until standard input ends; the arguments are those that ``watching`` passes."""
    parent, local_size, local_rank, rank, size, channel = map(int, sys.argv[1:])
    checks = 0
    while not select.select([sys.stdin], [], [], PERIOD)[0]:
        missing = missing_ranks(parent, local_size, local_rank, size)
        checks = checks + 1 if missing is not None else 0
        if missing is not None and checks >= CHECKS * (1 + local_rank):
            _report_and_abort(parent, missing, rank, size, channel)
            return


def _report_and_abort(parent: int, missing: list[int], rank: int, size: int, channel: int) -> None:
    specification = importlib.util.spec_from_file_location("report", Path(__file__).with_name("report.py"))
    assert specification is not None and specification.loader is not None
    report = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(report)
    names = f"rank {missing[0]}" if len(missing) == 1 else "ranks " + ", ".join(map(str, missing))
    reason = f"cannot start: {names if missing else 'a rank of this host'} ended before `import tenon`"
    if report.Claim(f"parent-{parent}").take():
        hint = "Its own message is above. Hooks from the first line on: python -m tenon.distributed SCRIPT\n"
        text = report.describe_exit(rank, size, os.uname().nodename, None, reason, 1, hint)
        os.write(2, text.encode())
        time.sleep(PERIOD)  # The launcher must read the report before it aborts the job.
    remove_segments(parent)
    os.write(channel, b"cmd=abort exitcode=1\n")


if __name__ == "__main__":
    main()
