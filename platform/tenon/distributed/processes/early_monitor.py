"""The early monitor: a process on each host that reports ranks which a signal kills before MPI has started.

The host monitor (``host_monitor.py``) starts once MPI has connected the ranks. Before that, from ``import
tenon`` on, the first rank of a host has this process, which knows the ranks as children of its launcher. It
runs this file without importing tenon, in a session of its own, and ends when the host monitor takes over, or
when all ranks of the host have ended. Only ends by a signal are reported here: ranks that fail otherwise
report themselves (``failure.py``) and tell this process so. Under ``tenon launch`` there is no such process
on its host: that command watches in its place (``launch_monitor.py``), from before the first rank on.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tenon.distributed.processes.launcher import RankFacts

SETTLING_TIME = 0.03
"""Seconds to wait for further ends after the first one noticed."""
SEARCH_PERIOD = 0.02
"""Seconds between two looks for ranks that the launcher has not started yet."""
SEARCH_TIME = 10.0
"""Seconds after which no further ranks are looked for."""
DETAILS = "MPI had not started yet, so the other ranks knew nothing of it.\n"
TAKEN_OVER, TAKING, OVER = b"taken over", b"q", b"e"
"""The message that the host monitor takes over; the byte for that; the byte for the end of the job."""
FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"


if TYPE_CHECKING or __package__:
    from tenon.distributed.processes import process_state, report
else:  # this file runs as a script, without tenon
    sys.path.append(str(Path(__file__).parent))
    import process_state
    import report


class EarlyMonitor:
    """The first rank's connection to the process, or to ``tenon launch`` where that watches the host."""

    def __init__(self, parent: int, process: subprocess.Popen[bytes] | None = None) -> None:
        self._parent = parent
        self._process = process
        self._owner = os.getpid()

    def end(self) -> None:
        """End the process, or the watch of ``tenon launch``: the host monitor takes over."""
        if os.getpid() != self._owner:
            return
        if self._process is None:
            report.send(f"early-{self._parent}", TAKEN_OVER)
        elif self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(TAKING)
                self._process.stdin.flush()
            self._process.stdin.close()
            self._process.wait()


def start(facts: RankFacts, environment: Mapping[str, str]) -> EarlyMonitor | None:
    """Connect to the monitor of this host, in its first rank; start it unless ``tenon launch`` watches.

    None elsewhere, and without a known launcher.
    """
    if facts.local_rank or not hasattr(os, "pidfd_open") or environment.get(FAULT_TOLERANT) == "1":
        return None
    parent = os.getppid()
    if not process_state.is_launcher(parent):
        return None
    messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        messages.bind(report.address(f"early-{parent}"))
    except OSError:
        messages.close()
        return EarlyMonitor(parent)  # the ranks of this launcher have one
    if report.send(f"parent-{parent}"):  # a rank that came here earlier is reporting its failure
        messages.close()
        return None
    launchers = process_state.launchers_of(os.getpid())
    outputs = [each.output for each in launchers if each.output >= 0]
    # Here already, as the process takes 20 ms to start: the kernel records the order in which ranks end.
    ranks = Ranks(parent, facts.local_size)
    ranks.search()
    known = {handle: [process, ranks.known[process]] for handle, process in ranks.handles.items()}
    shared = [ranks.poll.fileno(), messages.fileno()]
    given = [parent, facts.local_size, facts.size, *shared, list(known.items()), outputs]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, json.dumps(given)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[*shared, *known, *outputs],
        start_new_session=True, cwd="/",
    )  # fmt: skip
    ranks.poll.close()
    messages.close()
    for descriptor in (*known, *outputs, *(each.handle for each in launchers)):
        os.close(descriptor)
    return EarlyMonitor(parent, process)


class Ranks:
    """The ranks of this host, as children of their launcher, and their ends."""

    def __init__(self, parent: int, count: int) -> None:
        self.parent, self.count = parent, count
        self.poll = select.epoll()
        self.known: dict[int, int] = {}
        """Process -> rank, of those that were found."""
        self.handles: dict[int, int] = {}
        """A pidfd -> the process, of those that have not ended."""
        self._until = time.monotonic() + SEARCH_TIME

    def close(self) -> None:
        """Close the descriptors of the ranks that have not ended."""
        self.poll.close()
        for handle in self.handles:
            os.close(handle)

    @property
    def searching(self) -> bool:
        """Whether ranks may still be found."""
        return len(self.known) < self.count and time.monotonic() < self._until

    @property
    def living(self) -> int:
        """The number of ranks that were found and have not ended."""
        return len(self.handles)

    def search(self) -> None:
        """Look for ranks that have been started since."""
        for process in process_state.children_of(self.parent):
            if (
                process in self.known
                or (rank := process_state.number_in(process, process_state.RANK_VARIABLES)) is None
            ):
                continue
            try:
                handle = os.pidfd_open(process)
            except ProcessLookupError:
                continue
            self.known[process] = rank
            self.handles[handle] = process
            self.poll.register(handle, select.EPOLLIN)

    def ended(self, descriptor: int) -> tuple[int, int | None] | None:
        """The rank whose handle is ``descriptor``, and its wait status; None if it is no rank's."""
        process = self.handles.pop(descriptor, None)
        if process is None:
            return None
        self.poll.unregister(descriptor)
        status = process_state.exit_status(descriptor, process)
        os.close(descriptor)
        return self.known[process], status


def watch(
    parent: int,
    count: int,
    size: int,
    poll: int,
    listening: int,
    known: list[tuple[int, tuple[int, int]]],
    outputs: list[int],
) -> None:
    """Follow the ranks of the host from a process of its own.

    ``poll`` is an epoll instance with the handles in ``known``, which have a process and a rank each;
    ``listening`` the socket to which messages are sent.
    """
    ranks = Ranks(parent, count)
    ranks.poll = select.epoll.fromfd(poll)
    ranks.handles = {handle: process for handle, (process, _) in known}
    ranks.known = dict(each for _, each in known)

    def write(text: str) -> None:
        for output in (2, *outputs):
            try:
                os.write(output, text.encode())
            except OSError:
                continue  # the launcher is gone, and its pipe with it: try its own output
            break

    with socket.socket(fileno=listening) as messages:
        follow(ranks, messages, 0, size, write)


def follow(
    ranks: Ranks,
    messages: socket.socket,
    ending: int,
    size: int,
    write: Callable[[str], None],
    left: Callable[[int, int], None] | None = None,
) -> None:
    """Report the first rank that a signal kills, by ``write``; return when there is nothing left to watch.

    Ranks send to ``messages`` that they have reported, or that their monitor takes over. In ``ending`` comes
    ``TAKING`` for the latter too, or ``OVER`` when the job has ended. ``left(rank, status)`` is called for a
    rank that exits without a report.
    """
    ranks.poll.register(messages, select.EPOLLIN)
    ranks.poll.register(ending, select.EPOLLIN)
    reported = over = False
    while (ranks.living or ranks.searching) and not over:
        ranks.search()
        found: list[tuple[int, int | None]] = []
        deadline = 0.0
        while not over and (not found or time.monotonic() < deadline):
            for descriptor, _ in ranks.poll.poll(SEARCH_PERIOD if ranks.searching or found else None):
                if descriptor == ending:
                    word = os.read(ending, 1)
                    if word == TAKING:
                        return
                    over = word == OVER
                    ranks.poll.unregister(ending)  # else the first rank has ended, maybe killed
                elif descriptor == messages.fileno():
                    if messages.recv(16) == TAKEN_OVER:
                        return
                    reported = True
                elif (ended := ranks.ended(descriptor)) is not None:
                    deadline = deadline or time.monotonic() + SETTLING_TIME
                    found.append(ended)
            if not found and ranks.searching:
                ranks.search()
            elif not found and not ranks.living:
                break
        reported = reported or _report(ranks, found, size, write, left)


def _report(
    ranks: Ranks,
    ended: list[tuple[int, int | None]],
    size: int,
    write: Callable[[str], None],
    left: Callable[[int, int], None] | None,
) -> bool:
    """Report the first end of ``ended`` if it was by a signal; return whether the job's end has a report."""
    failed = [(rank, status) for rank, status in ended if status != 0]
    if failed and (failed[0][1] is None or failed[0][1] >> 8):
        # A rank has failed in another way, and the launcher ends the others.
        if left is not None and failed[0][1] is not None and not process_state.consequence(failed[0][1], ""):
            left(failed[0][0], failed[0][1] >> 8)
        return True
    # The launcher may have ended these, because of a rank on another host, or of one that was never found.
    uncertain = ranks.count < size or len(ranks.known) < ranks.count
    causes = [
        (rank, status, "") for rank, status in failed
        if status and status & 0x7F != signal.SIGINT
        and not (uncertain and process_state.consequence(status, ""))
    ]  # fmt: skip
    if not causes:
        return False
    rank, status, _ = process_state.first_cause(causes)
    reason = process_state.killed_by((status or 0) & 0x7F)
    write(report.describe_death(rank, size, os.uname().nodename, None, reason, DETAILS))
    return True


if __name__ == "__main__":
    watch(*json.loads(sys.argv[1]))
