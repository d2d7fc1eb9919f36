"""A rank's connection to the monitor of its host (``host_monitor.py``).

The first rank of each host starts the monitor. Each rank lets ``faulthandler`` write into the memory that the
monitor reads, so that the report of a crash names a line, and notes the line of a call of ``os._exit`` there.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.processes import exit_pipe, failure_record, process_state
from tenon.distributed.processes.early_monitor import EarlyMonitor
from tenon.distributed.processes.heartbeat_table import HeartbeatTable, crash_offset
from tenon.distributed.processes.startup import attempt

MONITOR = Path(__file__).with_name("host_monitor.py")


class MonitorConnection:
    """What this rank reports: to the monitor of its host, and into the run's folder."""

    def __init__(self, communicator: Communicator, table: HeartbeatTable, limit: float = 0.0) -> None:
        self.table = table
        self._limit = limit
        self._rank, self._size, self._host = communicator.rank, communicator.size, communicator.host
        self._job = communicator.job
        self._several_hosts = len(set(table.leaders)) > 1
        self._descriptor = -1
        self._crashes = False
        self._signals = False
        self._pipe: exit_pipe.ExitPipe | None = None
        self._attempt = attempt()

    def start(self, processes: Sequence[int], pipes: Sequence[int], own: exit_pipe.ExitPipe | None) -> None:
        """Let crashes be written into the table; the first rank of a host also starts the monitor.

        ``pipes`` are the reading ends of the ranks' exit pipes, of which ``own`` is this rank's.
        """
        self._pipe = own
        table = self.table
        if table.descriptor < 0 or not hasattr(os, "pidfd_open"):
            return
        if not faulthandler.is_enabled():  # else the user has chosen another file for its output
            os.lseek(table.descriptor, crash_offset(self._size, self._rank), os.SEEK_SET)
            faulthandler.enable(table.descriptor, all_threads=False)
            self._crashes = True
        if table.leaders[self._rank] != self._rank:
            return
        ranks = [rank for rank, leader in enumerate(table.leaders) if leader == self._rank]
        try:
            handles = [os.pidfd_open(processes[rank]) for rank in ranks]
        except ProcessLookupError:
            return  # a rank of this host has ended already, and the job is about to end
        ends = [exit_pipe.open_reading(processes[rank], pipes[rank]) for rank in ranks]
        poll = select.epoll()
        launchers = process_state.launchers_of(os.getpid())
        opened = [*handles, *(end for end in ends if end >= 0), *(each.handle for each in launchers)]
        for descriptor in opened:  # From here on the kernel records the order in which processes end.
            poll.register(descriptor, select.EPOLLIN)
        opened += [each.output for each in launchers if each.output >= 0]
        facts = {
            "size": self._size, "host": self._host, "job": self._job, "attempt": self._attempt,
            "ranks": ranks, "processes": [processes[rank] for rank in ranks], "handles": handles,
            "pipes": ends, "launchers": launchers, "poll": poll.fileno(), "nodes": len(set(table.leaders)),
            "descriptor": table.descriptor, "oom_kills": failure_record.oom_kills(), "limit": self._limit,
        }  # fmt: skip
        monitor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(MONITOR), json.dumps(facts)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            pass_fds=[table.descriptor, poll.fileno(), *opened], start_new_session=True, cwd="/",
        )  # fmt: skip
        poll.close()
        for descriptor in opened:
            os.close(descriptor)
        monitor.returncode = 0  # It outlives this process, which never waits for it.
        assert monitor.stdin is not None
        self._descriptor = os.dup(monitor.stdin.fileno())
        monitor.stdin.close()
        os.set_blocking(self._descriptor, False)

    def stop(self) -> None:
        """End the monitor, as ranks of this host may now end without the job; another may be started."""
        self.forget()
        if self._descriptor >= 0:
            os.write(self._descriptor, b"\0")
            os.close(self._descriptor)
            self._descriptor = -1

    def forget(self) -> None:
        """In a forked child, which is not a rank: write nothing for the rank any more."""
        if self._pipe is not None:
            self._pipe.close()
        if self._crashes:
            faulthandler.disable()
        if self._signals:
            signal.set_wakeup_fd(-1)

    def end(self) -> None:
        """Note that the program of this rank has ended."""
        self.table.write_ended(self._rank)

    def is_abandoned(self) -> bool:
        """Whether the launcher of this host's ranks has ended."""
        return self.table.abandoned

    def note_exit(self, status: object, frame: FrameType | None) -> None:
        """Note that this rank calls ``os._exit``."""
        if self.table.descriptor < 0:
            return
        line = "" if frame is None else f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in '
        name = "" if frame is None else f"{frame.f_code.co_name}\n"
        text = f"called os._exit({status!r})\n{line}{name}"
        os.pwrite(self.table.descriptor, text.encode(), crash_offset(self._size, self._rank))

    def listen(self) -> int:
        """Let the monitor learn of signals at once, even where Python waits for a long operation."""
        if self._descriptor < 0:
            return -1
        self._signals = True
        return signal.set_wakeup_fd(self._descriptor, warn_on_full_buffer=False)

    def stop_listening(self, former: int) -> None:
        """Undo ``listen``, which returned ``former``."""
        if self._signals:
            self._signals = False
            signal.set_wakeup_fd(former)

    def keep_records_in(self, folder: str) -> None:
        """Let records of failures be written into the run folder ``folder``."""
        self.table.folder = folder

    def may_report(self) -> bool:
        """Whether no other process has reported the end of this job; called by the holder of its claim."""
        if self.table.reporter is not None:
            return False
        self.table.reporter = self._rank
        folder = self.table.folder
        if self._several_hosts and folder and os.path.isdir(folder):
            failure_record.claim(folder, self._job)
        return True

    def record(self, text: str, status: int) -> None:
        """Write the record of this rank's failure, of which ``text`` is the report."""
        folder = self.table.folder
        if not folder or not os.path.isdir(folder):
            return
        beat = self.table.read(self._rank)
        record = failure_record.make(
            self._rank, self._size, self._host, os.getpid(), beat.step if beat.step >= 0 else None,
            self._job, self._attempt, reported=True, reason=failure_record.reason_of(text), status=status,
            line=failure_record.line_of(text), report=text,
        )  # fmt: skip
        failure_record.write(folder, record)


def start(
    communicator: Communicator, table: HeartbeatTable, early: EarlyMonitor | None, limit: float
) -> MonitorConnection:
    """Start the monitors of a job's hosts, without waiting until they run; collective.

    They take over from ``early``. ``limit`` is the watchdog's.
    """
    monitored = not communicator.survives  # else a job outlives the death of a rank
    pipe = exit_pipe.ExitPipe() if monitored and hasattr(os, "pidfd_open") else None
    own = [os.getpid(), -1 if pipe is None else pipe.reading]
    gathered = communicator.all_gather_bytes(encode(own), name="monitor")
    processes, pipes = zip(*map(decode, gathered), strict=True)
    if early is not None:
        early.end()
    monitor = MonitorConnection(communicator, table, limit)
    if monitored:
        monitor.start(processes, pipes, pipe)
    return monitor
