"""The host monitor: a process on each host that reports ranks which died without a report of their own.

A rank that is killed, crashes or calls ``os._exit`` runs no hook, and the launcher soon ends the others.
The monitor runs this file without importing tenon, in a session of its own, so that no launcher ends it. It
sleeps until a rank of the host or the launcher ends, and then writes one report and the records of
``failure_record.py``. It reads the exit status, where the system provides it (from a zombie, or from a
``pidfd`` on Linux 6.15 and newer), the heartbeats in shared memory, and what ``faulthandler`` wrote there.
It also lets ``launcher_hold.py`` delay a second Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from tenon.distributed.processes.heartbeat_table import Heartbeat, HeartbeatTable

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
SETTLING_TIME = 0.03
"""Seconds to wait for further ends after the first one noticed, which may not have happened first."""
ENDING_TIME = 1.0
"""Longest wait in seconds for a rank's end once its exit pipe has closed, which happens during its end."""
LEAVING_TIME = 0.3
"""Longest wait in seconds for the other ranks to end, after one has exited with status 0."""
HELD_BACK = "tenon: the second Ctrl-C followed at once and was delayed until the run was saved\n"
REFRESH = 30.0


if TYPE_CHECKING or __package__:
    from tenon.distributed.processes import (
        failure_record,
        heartbeat_table,
        launcher_hold,
        process_state,
        report,
    )
else:  # this file runs as a script, without tenon
    sys.path.append(str(Path(__file__).parent))
    import failure_record
    import heartbeat_table
    import launcher_hold
    import process_state
    import report


class Facts(TypedDict):
    """What ``monitor_connection.py`` passes."""

    size: int
    host: str
    job: str
    attempt: int
    ranks: list[int]
    """The ranks of this host; ``processes`` has their process ids."""
    processes: list[int]
    handles: list[int]
    """The pidfd of each process, opened while all were running."""
    pipes: list[int]
    """The reading end of the exit pipe of each rank (``exit_pipe.py``), -1 where it could not be opened."""
    launchers: list[process_state.Launcher]
    """The launchers above the ranks, the nearest first."""
    poll: int
    """The epoll instance in which the first rank has registered all of these handles and pipes."""
    nodes: int
    limit: float
    """Seconds for which a rank may be stopped after the end of its program; 0 for ever."""
    oom_kills: int
    descriptor: int
    """The file descriptor of the table's memory."""


class HostMonitor:
    """Waits for the ends of the ranks of its host and of their launcher."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.size, descriptor = facts["size"], facts["descriptor"]
        memory = mmap.mmap(descriptor, heartbeat_table.table_bytes(self.size))
        self.table: HeartbeatTable = heartbeat_table.HeartbeatTable(memory, self.size, [], descriptor)
        self.processes = dict(zip(facts["ranks"], facts["processes"], strict=True))
        self.launchers = [process_state.Launcher(*each) for each in facts["launchers"]]
        self.output = [2, *(each.output for each in self.launchers if each.output >= 0)]
        self.statuses: dict[int, int | None] = {}
        """The wait status of each rank that has ended, None where it is unknown."""
        self.reported = False
        self._poll = select.epoll.fromfd(facts["poll"])
        self._waiting: dict[int, tuple[int | str, int]] = {}
        self._pipes = {end: r for end, r in zip(facts["pipes"], facts["ranks"], strict=True) if end >= 0}
        self._order: list[int] = []  # the ranks whose exit pipes have closed, or that have ended without one
        proxy = next((each.process for each in self.launchers if each.name == process_state.PROXY), 0)
        self._hold = launcher_hold.Hold(proxy, self.launchers[-1].process if self.launchers else 0)
        self._replaced = False
        self._oom_kills = facts["oom_kills"]
        self._limit = facts["limit"]
        self._period = min(REFRESH, max(self._limit / 4, 0.05)) if self._limit else REFRESH
        self._stopped: dict[int, float] = {}
        """When each rank that is stopped after the end of its program was first seen so."""

    def run(self) -> None:
        """Return when all ranks of this host have ended."""
        for (rank, process), handle in zip(self.processes.items(), self.facts["handles"], strict=True):
            self._waiting[handle] = rank, process
        for process, name, handle, _ in self.launchers:
            self._waiting[handle] = f"{name} (process {process})", process
        self._poll.register(0, select.EPOLLIN)
        self.table.watched = True
        kills, refreshed = self._oom_kills, time.monotonic()
        while len(self.statuses) < len(self.processes):
            ended = self._wait(0.02 if self._hold.active else self._period)
            self._end_stopped()
            if self._replaced:
                return
            if self._hold.update(all(self.table.read(rank).ended for rank in self.processes)):
                self._write(HELD_BACK, directly=True)
            if ended or self._ending():
                ended += self._settle()
            if ended:
                self._hold.release()
                self._handle_ends(ended)
            if time.monotonic() - refreshed > REFRESH:
                self._oom_kills, kills, refreshed = kills, failure_record.oom_kills(), time.monotonic()
        self._record_others()

    def _end_stopped(self) -> None:
        """End the job if a rank has been stopped for too long after its program: the others wait in MPI."""
        if not self._limit:
            return
        now = time.monotonic()
        for rank, process in self.processes.items():
            ended = self.table.read(rank).ended and rank not in self.statuses
            if not (ended and process_state.stopped(process)):
                self._stopped.pop(rank, None)
            elif now - self._stopped.setdefault(rank, now) > self._limit:
                text = f"is stopped (SIGSTOP) for {self._limit:.3g} s, after the end of its program"
                self._report_death(rank, text, None, None, "", certain=True)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def _ending(self) -> list[int]:
        """The ranks whose exit pipes have closed, but which have not ended yet."""
        return [rank for rank in self._order if rank not in self.statuses]

    def _settle(self) -> list[tuple[int | str, int | None]]:
        """The ranks and launchers that end within a moment, and those that are ending."""
        ended, began = [], time.monotonic()
        while (passed := time.monotonic() - began) < (ENDING_TIME if self._ending() else SETTLING_TIME):
            ended += self._wait(max(SETTLING_TIME - passed, 0.005))
        self._order = [rank for rank in self._order if rank in self.statuses]  # others closed it themselves
        return ended

    def _wait(self, patience: float) -> list[tuple[int | str, int | None]]:
        """The ranks and launchers that have ended, in order, with their wait statuses."""
        ended: list[tuple[int | str, int | None]] = []
        for descriptor, _ in self._poll.poll(patience):
            if descriptor == 0:
                data = os.read(0, 64)
                self._replaced = self._replaced or 0 in data
                if not data:
                    self._poll.unregister(0)
                self._hold.signalled(data)
                continue
            self._poll.unregister(descriptor)
            if (closed := self._pipes.pop(descriptor, None)) is not None:
                os.close(descriptor)
                if closed not in self._order:
                    self._order.append(closed)
                continue
            who, process = self._waiting.pop(descriptor)
            status = process_state.exit_status(descriptor, process)
            os.close(descriptor)
            if isinstance(who, int):
                self.statuses[who] = status
                if who not in self._order:
                    self._order.append(who)
            ended.append((who, status))
        return ended

    def _handle_ends(self, ended: list[tuple[int | str, int | None]]) -> None:
        """Report the first end among ``ended``, unless it is not a failure or has been reported already."""
        launchers = [(who, status) for who, status in ended if isinstance(who, str)]
        killed = [(who, status) for who, status in launchers if status is not None and status & 0x7F]
        ranks = [(who, status) for who, status in ended if isinstance(who, int) and self._failed(who, status)]
        ranks.sort(key=lambda each: self._order.index(each[0]))
        causes = [(*each, self.table.crash(each[0])) for each in ranks]
        follow = all(process_state.consequence(status, note) for _, status, note in causes)
        if launchers and (isinstance(ended[0][0], str) or (killed and follow)):
            # Launchers end one after the other: report the one that started the others.
            order = [f"{each.name} (process {each.process})" for each in self.launchers]
            self._launcher_ended(*max(killed or launchers, key=lambda each: order.index(each[0])))
        elif causes and not self.reported and self.table.reporter is None:
            # The launcher may have ended all for another cause: prefer ends that it never causes.
            self._rank_ended(*process_state.first_cause(causes)[:2])

    def _failed(self, rank: int, status: int | None) -> bool:
        crashed = status is not None and status & 0x7F in CRASHES
        return crashed or not self.table.read(rank).ended

    def _rank_ended(self, rank: int, status: int | None) -> None:
        if status == 0 and self._all_left():
            return
        number = None if status is None else status & 0x7F
        note = self.table.crash(rank).partition("\nExtension modules:")[0]
        certain = process_state.consequence(status, note) == 0
        code = None if status is None or number else status >> 8
        if number:
            reason = process_state.killed_by(number)
        elif note.startswith("called"):
            reason, _, note = note.partition("\n")
        elif code is not None:
            reason = f"left with exit status {code} before the end of its program"
        else:
            reason = "ended without a report"
        self._report_death(rank, reason, number or None, code, note, certain=certain)

    def _all_left(self) -> bool:
        """Whether the other ranks of this host exit with status 0 too, as when the program itself ends so."""
        if any(status for status in self.statuses.values()):
            return False
        deadline = time.monotonic() + LEAVING_TIME
        others = set(self.processes) - set(self.statuses)
        while others and time.monotonic() < deadline:
            for rank in list(others):
                status = process_state.zombie_status(self.processes[rank])
                if status:
                    return False
                if status == 0 or not process_state.alive(self.processes[rank]):
                    others.discard(rank)
            time.sleep(0.005)
        return not others

    def _launcher_ended(self, who: int | str, status: int | None) -> None:
        living = [rank for rank in self.processes if not self.table.read(rank).ended]
        self.table.abandoned = True
        if not living:
            return
        if not self.reported and self.table.reporter is None:
            number = 0 if status is None else status & 0x7F
            how = f"was killed by {process_state.signal_name(number)}" if number else "ended"
            reason = f"lost its launcher: {who} {how}"
            self._report_death(living[0], reason, None, None, "", certain=False, directly=True)
        for rank in living:  # `tenon train` saves and ends, a plain script ends
            if rank not in self.statuses:
                process_state.remove_segments(self.processes[rank])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.processes[rank], signal.SIGTERM)

    def _report_death(
        self,
        rank: int,
        reason: str,
        number: int | None,
        code: int | None,
        note: str,
        *,
        certain: bool,
        directly: bool = False,
    ) -> None:
        """Write the report and the record of ``rank``, unless another process has reported."""
        self.reported = True
        job, folder = self.facts["job"], self._folder()
        if self.facts["nodes"] != 1:
            # Ranks that the launcher ends look like killed ones: the first host with the claim reports.
            if not folder and not certain:
                return
            if folder and not failure_record.claim(folder, job):
                return
        claim = report.Claim(job)
        if not claim.grab() or self.table.reporter is not None:
            return
        self.table.reporter = rank
        beat, host = self.table.read(rank), self.facts["host"]
        step = beat.step if beat.step >= 0 else None
        details = note if note.endswith("\n") or not note else f"{note}\n"
        if number == signal.SIGKILL and failure_record.oom_kills() > self._oom_kills:
            details += (
                "memory ran out: the kernel's out-of-memory killer has just ended a process of this host\n"
            )
        details += describe(beat, with_stack=not note)
        text = report.describe_death(rank, self.size, host, step, reason, details)
        self._write(text, directly=directly)
        line = failure_record.line_of(note) or failure_record.line_of(details)
        name = process_state.signal_name(number) if number else None
        self._record(rank, reported=True, reason=reason, signal=name, status=code, line=line, report=text)

    def _write(self, text: str, *, directly: bool = False) -> None:
        """Write to standard error: through the launcher, or ``directly`` to its own where it ends itself.

        Open MPI's ends without having forwarded all that it was sent. To a file it must write itself, as it
        would overwrite what others append.
        """
        late = any(each.name in process_state.OPEN_MPI for each in self.launchers)
        late = late and not stat.S_ISREG(os.fstat(self.output[-1]).st_mode)
        for output in reversed(self.output) if directly or late else self.output:
            try:
                os.write(output, text.encode())
            except OSError:
                continue  # the launcher is gone, and its pipe with it: try its own output
            return

    def _folder(self) -> str:
        folder = self.table.folder
        return folder if folder and os.path.isdir(folder) else ""

    def _record(self, rank: int, **more: Any) -> None:  # arguments of ``failure_record.make``
        folder = self._folder()
        if not folder:
            return
        beat = self.table.read(rank)
        record = failure_record.make(
            rank, self.size, self.facts["host"], self.processes[rank],
            beat.step if beat.step >= 0 else None, self.facts["job"], self.facts["attempt"], **more,
        )  # fmt: skip
        try:
            failure_record.write(folder, record)
        except OSError as error:
            os.write(
                2, f"tenon: no record of the failure of rank {rank} could be written: {error}\n".encode()
            )

    def _record_others(self) -> None:
        """Write the records of the ranks that ended with the job, if one of them failed."""
        reporter = self.table.reporter
        if reporter is None:
            return
        for rank, status in self.statuses.items():
            beat = self.table.read(rank)
            if rank == reporter or beat.ended:
                continue
            number = 0 if status is None else status & 0x7F
            self._record(
                rank, reported=False, reason=f"ended with the job, after the failure of rank {reporter}",
                signal=process_state.signal_name(number) if number else None,
                status=status >> 8 if status is not None and not number else None,
                line=failure_record.line_of(beat.stack) if beat.stack else None,
            )  # fmt: skip


def describe(beat: Heartbeat, *, with_stack: bool) -> str:
    """The last heartbeat of a dead rank as text; its stack is as old as the heartbeat."""
    if not beat.time:
        return ""
    age = f"{(time.monotonic_ns() - beat.time) / 1e9:.2g} s before"
    call = f" Its last collective then: call {beat.calls}, {beat.call}." if beat.calls else ""
    stack = f" It was at:\n{beat.stack}" if beat.stack and with_stack else ""
    doing = "in a collective" if beat.waiting else "computing"
    return f"process {beat.process} was {doing} {age} its end was noticed.{call}{stack}\n"


def main() -> None:
    """The argument is the facts, as JSON."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    HostMonitor(json.loads(sys.argv[1])).run()


if __name__ == "__main__":
    main()
