"""End a job whose ranks wait in vain, and say for whom.

A rank may hang without failing: in a loop, stopped, on a host that was cut off. MPI then waits for ever. A
thread of each rank looks a few times per ``limit`` where its rank is, and writes it into a table that all
can read (``heartbeats.py``). A rank that has been inside one collective call for ``limit`` seconds reports
who has not come to it, what that rank did last and where it is now, and ends the job with status 124.

``TENON_WATCHDOG`` is the limit in seconds, 600 unless set; 0 turns it off. Ranks at the end of their program
wait for the others as long as those need.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.config import Config
from tenon.distributed.communication.calls import Call, format_ranks
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.processes.heartbeats import NO_STEP, Beat, have_ended, share
from tenon.distributed.processes.report import describe_exit
from tenon.errors import ConfigError

DEFAULT = 600.0
STALLED = 124
"""Exit status of a job that the watchdog ended; that of ``timeout(1)``."""
SHORTEST, LONGEST = 0.05, 5.0
FRAMES = 8
_POLL = 0.02
Fail = Callable[[str, int], Any]


class Watchdog:
    """Watches the thread that uses ``communicator``; ``fail(report, status)`` ends the job."""

    def __init__(self, communicator: Communicator, limit: float, fail: Fail, node: int | None = None) -> None:
        self.limit = limit
        self.period = min(max(limit / 20, SHORTEST), LONGEST)
        self._communicator = communicator
        self._fail = fail
        self._home = _home(communicator)
        self._table = share(communicator, communicator.node if node is None else node)
        leaders = self._table.leaders
        self._lead = sorted(set(leaders))
        leading = communicator.rank in self._lead and len(self._lead) > 1
        self._others = communicator.split(0 if leading else None) if len(self._lead) > 1 else None
        self._call: Call | None = None
        self._before: tuple[Call, int | None] | None = None
        self._calls = 0
        self._thread_id = threading.get_ident()
        self._beat = Beat(process=os.getpid())
        self._judging = True
        self._over = threading.Event()
        self._record_calls()
        self._threads = [threading.Thread(target=self._watch, name="watchdog", daemon=True)]
        if self._others is not None:
            self._threads.append(threading.Thread(target=self._exchange, name="heartbeats", daemon=True))

    def start(self) -> Watchdog:
        """Begin to look."""
        self._table.write(self._communicator.rank, self._look())
        for thread in self._threads:
            thread.start()
        return self

    def rest(self) -> None:
        """This rank's program has ended: it may wait for the others without limit."""
        self._judging = False

    def stop(self) -> None:
        """All ranks have ended: end the threads."""
        self.rest()
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _record_calls(self) -> None:
        """Remember each call that the communicator is about to make; 0.1 us a call."""
        communicator = self._communicator
        agree = communicator.agree

        def remember(call: Call) -> None:
            if self._call is not None:
                self._before = self._call, communicator.step
            self._call = call
            self._calls += 1
            self._thread_id = threading.get_ident()
            agree(call)

        # On the object, not in its class: engines need know nothing of it.
        communicator.agree = remember  # type: ignore[method-assign]

    def _watch(self) -> None:
        while not self._over.wait(self.period):
            beat = self._look()
            self._table.write(self._communicator.rank, beat)
            if self._judging and beat.waiting and beat.time - beat.waiting > self.limit * 1e9:
                self._fail(self._report(beat), STALLED)
        self._beat.ended = 1
        self._table.write(self._communicator.rank, self._beat)

    def _look(self) -> Beat:
        """Where this rank is now."""
        beat, now = self._beat, time.monotonic_ns()
        frame = sys._current_frames().get(self._thread_id)
        places: list[str] = []
        inside = False
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if name in self._home or name.partition(".")[0] in self._home:
                inside = True
            elif len(places) < FRAMES and name != __name__:
                code = frame.f_code
                places.append(f"  {code.co_filename}:{frame.f_lineno} in {code.co_name}")
            frame = frame.f_back
        stays = inside and beat.waiting and beat.calls == self._calls
        beat.waiting = beat.waiting if stays else now * inside
        beat.time, beat.calls = now, self._calls
        step = self._communicator.step
        beat.step = NO_STEP if step is None else step
        beat.call = "" if self._call is None else self._call.describe(step)
        beat.place = "\n".join(places)
        return beat

    def _report(self, own: Beat) -> str:
        communicator, now = self._communicator, own.time
        beats = [self._table.read(rank) for rank in range(communicator.size)]
        silent = {rank for rank, beat in enumerate(beats) if now - beat.time > self.limit * 5e8}
        furthest = max(beat.calls for beat in beats)
        here = [r for r, b in enumerate(beats) if b.waiting and b.calls == furthest and r not in silent]
        late = [rank for rank in range(communicator.size) if rank not in here]
        waited = f"{(now - own.waiting) / 1e9:.3g} s"
        headline = f"has waited {waited} for {format_ranks(late)}" if late else f"has waited {waited}"
        lines = (
            [f"{format_ranks(here)} at {beats[here[0]].call}, collective call {furthest}\n"] if here else []
        )
        lines += [self._describe(rank, beats[rank], now, rank in silent) for rank in late[:8]]
        step = communicator.step
        return describe_exit(
            communicator.rank, communicator.size, communicator.host, step, headline, STALLED, "".join(lines)
        )

    def _describe(self, rank: int, beat: Beat, now: int, silent: bool) -> str:
        """One late rank: its state, its last collective and where it is."""
        age = f"{(now - beat.time) / 1e9:.3g} s"
        near = self._table.leaders[rank] == self._table.leaders[self._communicator.rank]
        state = _state(beat.process) if near else ""
        if not beat.time:
            what = "has never been heard of"
        elif silent:
            what = f"gave its last sign of life {age} ago{state}"
        else:
            what = ("is in another call" if beat.waiting else "is computing") + state
        if beat.calls < self._calls and self._before is not None:
            # All ranks were in the call before this one, or this rank would still be in it.
            call, step = self._before
            last = f"call {self._calls - 1}, {call.describe(step)}"
        else:
            last = f"call {beat.calls}, {beat.call}" if beat.calls else "none"
        place = f" It {'was' if silent else 'is'} at:\n{beat.place}" if beat.place else ""
        return f"rank {rank} (process {beat.process}) {what}. Its last collective: {last}.{place}\n"

    def _exchange(self) -> None:
        """Send the rows of this host to the others' leaders and take theirs, until all hosts have ended."""
        group = self._others
        assert group is not None
        leaders = self._table.leaders
        members = [[r for r, first in enumerate(leaders) if first == one] for one in self._lead]
        others = [index for index in range(group.size) if index != group.rank]
        ended = False
        while not ended:
            self._over.wait(self.period)
            mine = self._table.rows(members[group.rank])
            boxes = [np.empty(len(self._table.rows(members[i])), np.uint8) for i in others]
            works = [group.receive(box, i) for box, i in zip(boxes, others, strict=True)]
            works += [group.send(np.frombuffer(mine, np.uint8), i) for i in others]
            while not all([work.is_completed() for work in works]):
                time.sleep(_POLL)
            for work in works:
                work.wait()
            # Of what all have sent and nothing newer, so that all leave after the same round.
            ended = have_ended(mine) and all(have_ended(box.tobytes()) for box in boxes)
            for box, index in zip(boxes, others, strict=True):
                self._table.take(members[index], box.tobytes())


def _home(communicator: Communicator) -> frozenset[str]:
    """Modules and packages whose code runs only inside a collective call."""
    module = type(communicator).__module__
    package = module.partition(".")[0]
    return frozenset(
        ["tenon.distributed.communication.communicator", module if package == "tenon" else package]
    )


def _state(process: int) -> str:
    """What this host's kernel says of a process that does not move."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ": there is no such process any more" if os.path.isdir("/proc/self") else ""
    return {"T": ": it is stopped (SIGSTOP)", "t": ": a debugger holds it", "D": ": it waits for a disk"}.get(
        letter, ""
    )


def start(communicator: Communicator, fail: Fail, config: Config) -> Watchdog | None:
    """The watchdog of this job, with rank 0's limit; None where that is 0. All ranks call it."""
    text = config.setting("watchdog") or str(DEFAULT)
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if limit < 0:
        raise ConfigError(
            f"TENON_WATCHDOG={text!r} is not a number of seconds. Write 600, or 0 to turn it off."
        )
    limit = float(decode(communicator.all_gather_bytes(encode(limit), name="watchdog")[0]))
    return Watchdog(communicator, limit, fail).start() if limit else None
