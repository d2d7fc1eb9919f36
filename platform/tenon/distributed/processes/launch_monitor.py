"""``tenon launch`` watches the ranks of its host until their own monitor takes over.

The first rank of a host starts the early monitor (``early_monitor.py``) at its ``import tenon``: what dies
before that would have no report. ``tenon launch`` is there before any rank, and sees those of its own host as
children of the launcher that it has started. A rank that a signal kills is reported, and the launcher ends
the others. A rank that exits before it has imported tenon is reported too, and the job is ended, as the
others would wait for that rank.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable

from tenon.distributed.processes import early_monitor, process_state, report

SEARCH_PERIOD = 0.005
"""Seconds between two looks for the first rank: a rank imports tenon 50 ms after its start."""
LOCAL_SIZE_VARIABLES = ("MPI_LOCALNRANKS=", "OMPI_COMM_WORLD_LOCAL_SIZE=")
DETAILS = (
    "It had not imported tenon yet. Its own message, if it has written one, is above; the other ranks would "
    "have waited for it.\n"
)


class LaunchMonitor:
    """A thread that watches the ranks which the process ``launcher`` starts on this host.

    ``write`` gets the text of a report. ``end`` is called with the exit status of a rank that has left
    without a report, to end the job.
    """

    def __init__(
        self, launcher: int, size: int, write: Callable[[str], None], end: Callable[[int], None]
    ) -> None:
        self._launcher, self._size = launcher, size
        self._write, self._end = write, end
        self._parent = 0
        self._reading, self._writing = os.pipe()
        self._thread = threading.Thread(target=self._run, name="launch monitor", daemon=True)

    def start(self) -> None:
        """Begin to watch, where the system has what it takes: Linux."""
        if sys.platform == "linux" and hasattr(os, "pidfd_open"):
            self._thread.start()

    def stop(self) -> None:
        """End the watch: the job has ended."""
        if self._thread.ident is not None:
            os.write(self._writing, early_monitor.OVER)
            self._thread.join()
        os.close(self._reading)
        os.close(self._writing)

    def _run(self) -> None:
        until = time.monotonic() + early_monitor.SEARCH_TIME  # all ranks may be on other hosts
        while (found := first_rank(self._launcher)) is None:
            if select.select([self._reading], [], [], SEARCH_PERIOD)[0] or time.monotonic() > until:
                return
        self._parent, count = found
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as messages:
            try:
                messages.bind(report.address(f"early-{self._parent}"))
            except OSError:
                return  # a rank has imported tenon already, and started a monitor
            ranks = early_monitor.Ranks(self._parent, count or self._size)
            try:
                early_monitor.follow(ranks, messages, self._reading, self._size, self._write, self._left)
            finally:
                ranks.close()

    def _left(self, rank: int, status: int) -> None:
        """Report a rank that has exited without a report, and end the job."""
        if report.Claim(f"parent-{self._parent}").grab():
            reason = f"left with exit status {status} before its `import tenon`"
            host = os.uname().nodename
            self._write(report.describe_exit(rank, self._size, host, None, reason, status, DETAILS))
            self._end(status)


def first_rank(launcher: int) -> tuple[int, int | None] | None:
    """The process that has started ranks on this host, ``launcher`` or its child, and their number if known.

    None if there is no rank yet.
    """
    for parent in (launcher, *process_state.children_of(launcher)):
        if not process_state.is_launcher(parent):
            continue
        for child in process_state.children_of(parent):
            if process_state.number_in(child, process_state.RANK_VARIABLES) is not None:
                return parent, process_state.number_in(child, LOCAL_SIZE_VARIABLES)
    return None
