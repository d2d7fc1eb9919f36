"""While ranks wait in ``MPI_Init``, detect that another rank of this host will not get there.

A script that fails before its ``import tenon`` has no failure hooks, and MPICH's launcher and the other ranks
wait for it; so they do for a rank that is stopped. Those ranks cannot check themselves: mpi4py holds the
interpreter's lock. So the first two ranks of a host start a small process each (this file, without tenon,
15 ms), which checks with Linux whether the launcher still has all its children; if not, or if the wait
exceeds the watchdog's limit, it reports that and ends the job. It ends with its rank. The second rank's
process reports a missing rank only if that is the first.

A job that ends in ``MPI_Init`` leaves MPICH's shared memory, a file of 4 MB, unless it is removed here.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.distributed.processes.launcher import RankFacts

PROXY = "hydra_pmi_proxy"
PERIOD = 0.1
SEGMENT = "/dev/shm/mpich_shm_"
CHECKS = 3
"""Number of consecutive checks that must find a rank missing; twice as many in the second rank's process."""
STALLED = 124
"""The watchdog's exit status."""
SHORTEST_LIMIT = 10.0
"""The shortest limit in seconds for the start of MPI, which takes seconds itself on a busy machine."""


if TYPE_CHECKING or __package__:
    from tenon.distributed.processes import process_state, report
else:  # this file runs as a script, without tenon
    sys.path.append(str(Path(__file__).parent))
    import process_state
    import report


@contextlib.contextmanager
def watching(facts: RankFacts, environment: Mapping[str, str], limit: float) -> Iterator[None]:
    """Watch the ranks of this host inside the block, if a known launcher started them on Linux.

    ``limit`` is the longest wait in seconds, 0 for any; ``SHORTEST_LIMIT`` if it is shorter.
    """
    channel = environment.get("PMI_FD", "")
    parent = os.getppid()
    is_mpich = _read_text(f"/proc/{parent}/comm").strip() == PROXY
    if facts.local_rank > 1 or not process_state.is_launcher(parent) or is_mpich != channel.isdigit():
        yield
        return
    limit = max(limit, SHORTEST_LIMIT) if limit else 0.0
    numbers = [parent, facts.local_size, facts.local_rank, facts.rank, facts.size, channel or -1, limit]
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, *map(str, numbers)],
        stdin=subprocess.PIPE,
        pass_fds=[int(channel)] if is_mpich else [],
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
    """Check on the other ranks until standard input ends; the arguments are from ``watching``."""
    parent, local_size, local_rank, rank, size, channel = map(int, sys.argv[1:7])
    limit, checks, began = float(sys.argv[7]), 0, time.monotonic()
    while not select.select([sys.stdin], [], [], PERIOD)[0]:
        missing = missing_ranks(parent, local_size, local_rank, size) if channel >= 0 else None
        checks = checks + 1 if missing is not None else 0
        if missing is not None and checks >= CHECKS * (1 + local_rank):
            names = _ranks(missing) if missing else "a rank of this host"
            hint = (
                "Its own message is above. Hooks from the first line on: python -m tenon.distributed SCRIPT\n"
            )
            reason = f"cannot start: {names} ended before `import tenon`"
            _report_and_abort(parent, rank, size, channel, reason, 1, hint)
            return
        if limit and time.monotonic() - began > limit:
            late, details = late_ranks(parent)
            waited = f"has waited {limit:.3g} s for the start of MPI"
            reason = f"{waited} on {_ranks(late)}" if late else f"{waited}, of ranks on other hosts"
            _report_and_abort(parent, rank, size, channel, reason, STALLED, details)
            return


def late_ranks(parent: int) -> tuple[list[int], str]:
    """The children of ``parent`` that are stopped, or do not start MPI, and a line about each."""
    found: dict[int, str] = {}
    for child in process_state.children_of(parent):
        rank = process_state.number_in(child, process_state.RANK_VARIABLES)
        stopped = process_state.stopped(child)
        inside = "libmpi" in _read_text(f"/proc/{child}/maps")
        if rank is not None and (stopped or not inside):
            where = "starts MPI" if inside else "has not come to the start of MPI"
            found[rank] = f"rank {rank} (process {child}) {where}{': it is stopped (SIGSTOP)' * stopped}\n"
    return sorted(found), "".join(found[rank] for rank in sorted(found)[:8])


def _ranks(numbers: list[int]) -> str:
    return f"rank {numbers[0]}" if len(numbers) == 1 else "ranks " + ", ".join(map(str, numbers))


def _report_and_abort(
    parent: int, rank: int, size: int, channel: int, reason: str, status: int, details: str
) -> None:
    if report.Claim(f"parent-{parent}").take():
        report.note_early_report(parent)
        text = report.describe_exit(rank, size, os.uname().nodename, None, reason, status, details)
        os.write(2, text.encode())
        time.sleep(PERIOD)  # The launcher must read the report before it aborts the job.
    if channel >= 0:
        remove_segments(parent)
        os.write(channel, f"cmd=abort exitcode={status}\n".encode())
    else:
        os.kill(os.getppid(), signal.SIGKILL)  # Open MPI's launcher then ends all ranks.


if __name__ == "__main__":
    main()
