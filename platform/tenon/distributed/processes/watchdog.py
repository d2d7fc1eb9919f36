"""Terminate a job whose ranks hang in a collective call, and report which ranks they wait for.

A rank may hang without failing: in a loop, stopped by a signal, or on a host that lost its network. MPI then
waits forever. A thread of each rank records several times per ``limit`` where its rank is, in a table that
all ranks can read (``heartbeats.py``). A rank that has been inside one collective call for ``limit`` seconds
reports which ranks have not made that call, their last collective and where they are now, and terminates the
job with exit status 124.

``TENON_WATCHDOG`` is the limit in seconds, 600 by default; 0 turns the watchdog off. A rank whose program has
ended waits for the others as long as they send heartbeats.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

import numpy as np

from tenon.config import Config
from tenon.distributed.communication.calls import Call, format_ranks
from tenon.distributed.communication.clock import Clock, clock_of
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.processes import slow_ranks, stragglers
from tenon.distributed.processes.heartbeat_table import NO_STEP, Heartbeat, HeartbeatTable, have_ended
from tenon.distributed.processes.heartbeats import create_table
from tenon.distributed.processes.own_code import is_own
from tenon.distributed.processes.report import describe_exit
from tenon.distributed.processes.run_queue import RunQueue

DEFAULT = 600.0
STALLED = 124
"""Exit status of a job that the watchdog terminated; that of ``timeout(1)``."""
SHORTEST, LONGEST = 0.05, 1.0
"""Bounds of the period in seconds."""
LATE_LIMIT = 10.0
"""The shortest limit in seconds at the end, where a busy machine may delay heartbeats."""
FRAMES = 8
_POLL = 0.02
#: Ends the job: called with the report and the exit status.
Fail: TypeAlias = Callable[[str, int], NoReturn]


class Watchdog:
    """Watches the thread that uses ``communicator``; ``fail(report, status)`` ends the job.

    ``node`` makes a table of its own for simulated hosts. A ``limit`` of 0 only records what the rank does.
    ``slow`` are settings of the search for slow ranks, whose ``members`` are given to the rank that judges.
    """

    def __init__(
        self,
        communicator: Communicator,
        limit: float,
        fail: Fail,
        node: int | None = None,
        table: HeartbeatTable | None = None,
        slow: stragglers.Settings | None = None,
        members: Sequence[stragglers.Member] = (),
    ) -> None:
        self.limit = limit
        self.period = min(max(limit / 20, SHORTEST), LONGEST) if limit else LONGEST
        self._judge = None
        if slow is not None and slow.threshold:
            self.period = min(self.period, max(slow.window / stragglers.SAMPLES, SHORTEST))
            self._judge = stragglers.Stragglers(members, slow) if members else None
        self._communicator = communicator
        self._fail = fail
        self._inside = _collective_modules(communicator)
        if table is None:
            table = create_table(communicator, communicator.node if node is None else node)
        self._table = table
        self._leaders = sorted(set(self._table.leaders))
        leads = communicator.rank in self._leaders
        self._leader_group = communicator.split(0 if leads else None) if len(self._leaders) > 1 else None
        if self._leader_group is not None:
            self._leader_group.kept[Clock] = Clock()  # Another thread uses it.
        self._call: Call | None = None
        self._previous_call: tuple[Call, int | None] | None = None
        self._calls = 0
        self._step = communicator.step
        self._thread_id = threading.get_ident()
        self._beat = Heartbeat(process=os.getpid())
        self._clock = clock_of(communicator) or Clock()
        self._queue = RunQueue()
        self._armed = True
        self._stopping = threading.Event()
        if clock_of(communicator) is None:
            self._clock.follow(communicator)
        self._record_calls()
        self._threads = [threading.Thread(target=self._watch, name="watchdog", daemon=True)]
        if self._leader_group is not None:
            self._threads.append(threading.Thread(target=self._exchange, name="heartbeats", daemon=True))

    def start(self) -> Watchdog:
        """Start the threads, and return the watchdog."""
        self._table.write(self._communicator.rank, self._observe())
        for thread in self._threads:
            thread.start()
        return self

    def disarm(self) -> None:
        """Let this rank, whose program has ended, wait for the others as long as they send heartbeats."""
        self._armed = False

    def stop(self) -> None:
        """Stop the threads, as the programs of all ranks have ended."""
        self.disarm()
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._queue.close()

    def _record_calls(self) -> None:
        """Record each call before the communicator makes it; 0.1 us a call."""
        communicator = self._communicator
        agree = communicator.agree

        def agree_recorded(call: Call) -> None:
            if self._call is not None:
                self._previous_call = self._call, communicator.step
            self._call = call
            self._calls += 1
            self._thread_id = threading.get_ident()
            if communicator.step is not self._step:
                self._step = communicator.step
                self._table.write_step(communicator.rank, NO_STEP if self._step is None else self._step)
            agree(call)

        # Set on the instance, so that engines need no code for it.
        communicator.agree = agree_recorded  # type: ignore[method-assign]

    def _watch(self) -> None:
        """The first thread: record heartbeats, and end the job when this rank's call exceeds the limit."""
        while not self._stopping.wait(self.period):
            beat = self._observe()
            self._table.write(self._communicator.rank, beat)
            if self._judge is not None and self._armed:
                for found in self._judge.observe(self._all_beats()):
                    slow_ranks.say(found)
            if self.limit and self._armed and beat.waiting and beat.time - beat.waiting > self.limit * 1e9:
                self._fail(self._report(beat), STALLED)
            if self.limit and not self._armed and (silent := self._silent(beat.time)):
                self._fail(self._report_silence(silent, beat.time), STALLED)
        self._beat.ended = 1
        self._table.write(self._communicator.rank, self._beat)

    def _all_beats(self) -> list[Heartbeat]:
        return [self._table.read(rank) for rank in range(self._communicator.size)]

    def _silent(self, now: int) -> list[int]:
        """The ranks whose programs go on, but which have sent no heartbeat for longer than the limit."""
        beats = self._all_beats()
        limit = max(self.limit, LATE_LIMIT) * 1e9
        return [r for r, b in enumerate(beats) if b.time and not b.ended and now - b.time > limit]

    def _report_silence(self, silent: list[int], now: int) -> str:
        """The report of this rank, whose program has ended, about ranks that are stopped or cut off."""
        communicator = self._communicator
        headline = f"has ended its program, and has no sign of life of {format_ranks(silent)}"
        lines = [self._describe(rank, self._table.read(rank), now, True) for rank in silent[:8]]
        return describe_exit(
            communicator.rank, communicator.size, communicator.host, communicator.step, headline, STALLED,
            "".join(lines),
        )  # fmt: skip

    def _observe(self) -> Heartbeat:
        """This rank's heartbeat, updated to the current time."""
        beat, now = self._beat, time.monotonic_ns()
        beat.waits, beat.waited, beat.data = self._clock.read()
        beat.processor, beat.queued = time.process_time_ns(), self._queue.read()
        beat.stage = self._clock.stage
        frame = sys._current_frames().get(self._thread_id)
        lines: list[str] = []
        inside, place = False, ""
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if name in self._inside or name.partition(".")[0] in self._inside:
                inside = True
            elif name != __name__ and (len(lines) < FRAMES or not place):
                code = frame.f_code
                line = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
                if len(lines) < FRAMES:
                    lines.append(f"  {line}")
                if not place and is_own(name, code.co_filename):
                    place = line
            frame = frame.f_back
        same_call = inside and beat.waiting and beat.calls == self._calls
        beat.waiting = beat.waiting if same_call else now * inside
        beat.time, beat.calls = now, self._calls
        step = self._communicator.step
        beat.step = NO_STEP if step is None else step
        beat.call = "" if self._call is None else self._call.describe(step)
        beat.stack = "\n".join(lines)
        beat.place = place or (lines[0].strip() if lines else "")
        return beat

    def _report(self, own: Heartbeat) -> str:
        """The report of this rank's wait: the ranks in its call, then up to 8 that are missing there."""
        communicator, now = self._communicator, own.time
        beats = self._all_beats()
        silent = {rank for rank, beat in enumerate(beats) if now - beat.time > self.limit * 5e8}
        furthest = max(beat.calls for beat in beats)
        arrived = [r for r, b in enumerate(beats) if b.waiting and b.calls == furthest and r not in silent]
        missing = [rank for rank in range(communicator.size) if rank not in arrived]
        duration = f"{(now - own.waiting) / 1e9:.3g} s"
        headline = (
            f"has waited {duration} for {format_ranks(missing)}" if missing else f"has waited {duration}"
        )
        lines: list[str] = []
        if arrived:
            call = beats[arrived[0]].call
            lines.append(f"{format_ranks(arrived)} at {call}, collective call {furthest}\n")
        lines += [self._describe(rank, beats[rank], now, rank in silent) for rank in missing[:8]]
        step = communicator.step
        return describe_exit(
            communicator.rank, communicator.size, communicator.host, step, headline, STALLED, "".join(lines)
        )

    def _describe(self, rank: int, beat: Heartbeat, now: int, silent: bool) -> str:
        """The state of a missing rank, its last collective, and where its program is."""
        age = f"{(now - beat.time) / 1e9:.3g} s"
        on_this_host = self._table.leaders[rank] == self._table.leaders[self._communicator.rank]
        state = _process_state(beat.process) if on_this_host else ""
        if not beat.time:
            activity = "has sent no heartbeat"
        elif silent:
            activity = f"sent its last heartbeat {age} ago{state}"
        else:
            activity = ("is in another call" if beat.waiting else "is computing") + state
        if beat.calls < self._calls and self._previous_call is not None:
            # All ranks have made the previous call, or this rank would still be in it.
            call, step = self._previous_call
            last = f"call {self._calls - 1}, {call.describe(step)}"
        else:
            last = f"call {beat.calls}, {beat.call}" if beat.calls else "none"
        stack = f" It {'was' if silent else 'is'} at:\n{beat.stack}" if beat.stack else ""
        return f"rank {rank} (process {beat.process}) {activity}. Its last collective: {last}.{stack}\n"

    def _exchange(self) -> None:
        """The second thread: exchange rows with the leaders of other hosts until all programs have ended."""
        group = self._leader_group
        assert group is not None
        members = [
            [rank for rank, leader in enumerate(self._table.leaders) if leader == each]
            for each in self._leaders
        ]
        others = [index for index in range(group.size) if index != group.rank]
        ended = False
        while not ended:
            self._stopping.wait(self.period)
            sent = self._table.pack_rows(members[group.rank])
            received = [np.empty(len(self._table.pack_rows(members[i])), np.uint8) for i in others]
            works = [group.receive(buffer, i) for buffer, i in zip(received, others, strict=True)]
            works += [group.send(np.frombuffer(sent, np.uint8), i) for i in others]
            while not all([work.is_completed() for work in works]):
                time.sleep(_POLL)
            for work in works:
                work.wait()
            # Judged by the exchanged rows, not by newer ones, so that all leaders stop after the same round.
            ended = have_ended(sent) and all(have_ended(buffer.tobytes()) for buffer in received)
            for buffer, index in zip(received, others, strict=True):
                self._table.store_rows(members[index], buffer.tobytes())


def _collective_modules(communicator: Communicator) -> frozenset[str]:
    """Modules and packages whose code runs only inside a collective call."""
    module = type(communicator).__module__
    package = module.partition(".")[0]
    return frozenset(
        ["tenon.distributed.communication.communicator", module if package == "tenon" else package]
    )


def _process_state(process: int) -> str:
    """Why a process of this host does not run, as the end of a sentence; empty if it can."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ": there is no such process any more" if os.path.isdir("/proc/self") else ""
    return {
        "T": ": it is stopped (SIGSTOP)",
        "t": ": a debugger has stopped it",
        "D": ": it waits for a disk",
    }.get(letter, "")


def start(communicator: Communicator, fail: Fail, config: Config, table: HeartbeatTable) -> Watchdog:
    """Start the watchdog with rank 0's settings; with a limit of 0 it records heartbeats only. Collective."""
    slow = stragglers.settings_in(config)
    node = communicator.kept.get("simulated node", communicator.node)
    own = encode([limit_in(config), slow.threshold, slow.window, communicator.host, node])
    found = [decode(each) for each in communicator.all_gather_bytes(own, name="watchdog")]
    limit, threshold, window = found[0][:3]
    slow = stragglers.Settings(threshold, window)
    members = [stragglers.Member(host, node) for *_, host, node in found] if communicator.rank == 0 else ()
    return Watchdog(communicator, limit, fail, table=table, slow=slow, members=members).start()


def limit_in(config: Config) -> float:
    """The limit in seconds that ``config`` sets, 0 for none; ConfigError if it is not a number of seconds."""
    return config.number("watchdog", DEFAULT, "seconds. Write 600, or 0 to turn it off")
