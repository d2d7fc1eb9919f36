"""Start the ranks, and restart them from the last checkpoint when they fail: ``tenon launch``.

One attempt is one ``mpirun``. This process supervises: it forwards signals, copies standard error through to
find the report of a failure (``distributed/processes/report.py``), and logs the outcome of each attempt.
There is no restart after Ctrl-C, a preemption (``signals.py``) or an invalid configuration.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

import click

from tenon.config import process_environment
from tenon.distributed.processes.launch_monitor import LaunchMonitor
from tenon.distributed.processes.orphans import end_with_parent
from tenon.distributed.processes.startup import ATTEMPT, LAUNCH
from tenon.distributed.processes.watchdog import STALLED
from tenon.training import checkpoint, command, signals
from tenon.training.launching.hosts import Launcher
from tenon.training.launching.places import Place, Places

_HEADLINE = re.compile(rb"=== tenon: (rank \d+ of \d+ on host .*) ===")
_GONE = re.compile(
    r" (was killed by SIG\w+(, perhaps as .*)?|left with exit status .*|ended without a report)$"
)
_HOST = re.compile(r" on host ([^ ,]+)")
_MEMORY = "; dmesg shows whether memory ran out"
ENDING_TIME = 2.0
"""Seconds that the launcher gets to end its ranks before it is killed."""
WAITING_PERIOD = 5.0
"""Seconds between two looks for enough hosts."""
LOOKING_PERIOD = 0.5
"""Seconds between two looks at a job that may go on elsewhere."""
STARTING_TIME = 3.0
"""Seconds that an attempt lasts at least, before it is ended to go on elsewhere."""
ASKING_AGAIN = 5.0
"""Seconds after which a job that has not ended yet is asked again."""
MOVING = getattr(signal, "SIGUSR1", signal.SIGTERM)
"""The signal after which ranks save and end, which launchers forward without ending the ranks themselves."""
_FINAL = {signals.exit_status(number) for number in signals.STOPPING} | {command.REFUSED}


@dataclass
class Outcome:
    """The outcome of one attempt: its exit status, and the headline of its failure report if there is one."""

    status: int = 0
    seconds: float = 0.0
    report: str = ""
    left: int = 0
    """The exit status of a rank that left before its ``import tenon``, for which the job was ended."""
    better: Place | None = None
    """Where to go on, if the attempt was ended for that."""

    @property
    def lost_a_rank(self) -> bool:
        """Whether a rank was killed or stalled, so that fewer ranks may succeed."""
        gone = _GONE.search(self.report) is not None  # a monitor's report: the rank could not report itself
        return self.status == STALLED or self._killed or gone or not self.report

    @property
    def _killed(self) -> bool:
        """Whether a rank died of SIGKILL; with Open MPI another rank may have reported that first."""
        return self.status == signals.exit_status(signal.SIGKILL)

    @property
    def lost_host(self) -> str:
        """The host of the rank that was lost, by its own name; empty if the report is another rank's."""
        match = _HOST.search(self.report) if _GONE.search(self.report) else None
        return match[1] if match else ""

    def describe(self) -> str:
        """The outcome as a clause for the log."""
        if self.better is not None:
            return f"ended after {self.seconds:.1f} s to go on with {self.better}"
        cause = self.report or self._guess_cause()
        if self._killed and "RankFailedError" in cause:
            cause = self._guess_cause()
        elif cause.endswith("by SIGKILL"):
            cause += _MEMORY
        return f"ended after {self.seconds:.1f} s with status {self.status}: {cause}"

    def _guess_cause(self) -> str:
        """The likely cause: MPICH's mpirun exits with the number of the signal, others with 128 + number."""
        number = self.status if self.status < 128 else self.status - 128
        # Statuses 1 and 2 are those of ordinary failures, not of signals.
        if number not in set(signal.Signals) or number <= signal.SIGINT:
            return "no rank left a report"
        if self.status in _FINAL:
            return f"stopped by {signal.Signals(number).name}"
        memory = _MEMORY if number == signal.SIGKILL else ""
        return f"a rank was killed by {signal.Signals(number).name}{memory}"


class Supervisor:
    """Runs ``command`` on all ranks through ``launcher``, and reruns it when it fails.

    ``folder`` is the run folder, None for scripts.
    """

    def __init__(
        self, command: Sequence[str], launcher: Launcher | None, places: Places, folder: Path | None
    ) -> None:
        self.command = list(command)
        self.launcher = launcher
        self.places = places
        self.folder = folder
        self._job: subprocess.Popen[bytes] | None = None
        self._signals: list[int] = []
        self._identifier = secrets.token_hex(8)

    def run(self, restarts: int) -> int:
        """Make attempts until one succeeds, or ``1 + restarts`` have failed; return the last exit status.

        After losing a rank the next attempt has one fewer where ``places`` allows it. An attempt that ends
        to go on in a better place has not failed.
        """
        attempts, number = restarts + 1, 0
        with self._forwarding_signals():
            while number < attempts:
                place = self._wait_for_place()
                if place is None:
                    return signals.exit_status(self._signals[0])
                number += 1
                self._log(f"attempt {number} of {attempts}, {place}{self._start()}")
                outcome = self._attempt(place, number)
                if outcome.status == 0 and (outcome.better is None or self.folder is not None):
                    self._log(f"done after {number} attempt{'s' if number > 1 else ''}")
                    return 0
                self._log(f"attempt {number} {outcome.describe()}")
                if self._signals and not outcome.report and outcome.status not in _FINAL:
                    # Open MPI's mpirun forwards signals, and then exits with a status of its own.
                    outcome.status = signals.exit_status(self._signals[0])
                if self._signals or (outcome.status in _FINAL and outcome.better is None):
                    return outcome.status
                if outcome.better is not None:
                    attempts += 1
                elif outcome.lost_a_rank:
                    self.places.lose(place, outcome.lost_host)
            self._log(f"no attempts left; raise --max-restarts{self._advice()}")
            return outcome.status

    def _wait_for_place(self) -> Place | None:
        """The place of the next attempt, as soon as there is one; None after a signal."""
        said = ""
        while (place := self.places.next()) is None and not self._signals:
            if said != (said := self.places.missing()):
                self._log(f"waits for hosts: {said}")
            self._sleep(WAITING_PERIOD)
        return None if self._signals else place

    def _sleep(self, seconds: float) -> None:
        """Sleep, but for a signal."""
        until = time.monotonic() + seconds
        while not self._signals and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _attempt(self, place: Place, number: int) -> Outcome:
        started = time.monotonic()
        outcome = Outcome()
        launched = self.launcher is not None and (place.ranks > 1 or bool(place.hosts))
        starter = self.launcher.start(place.ranks, place.hosts) if self.launcher and launched else []
        self._job = subprocess.Popen(
            [*starter, *self.command],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**process_environment(), ATTEMPT: str(number), LAUNCH: self._identifier},
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        reader = threading.Thread(target=_copy, args=(self._job.stderr, outcome), daemon=True)
        reader.start()
        monitor = self._watch(self._job, place.ranks, outcome) if launched else None
        status = self._wait(self._job, place, outcome) if self.places.may_change else self._job.wait()
        if monitor is not None:
            monitor.stop()
        reader.join(1.0)  # a daemon of the ranks may still have the pipe open
        outcome.status = outcome.left or (128 - status if status < 0 else status)
        outcome.seconds = time.monotonic() - started
        return outcome

    def _wait(self, job: subprocess.Popen[bytes], place: Place, outcome: Outcome) -> int:
        """Wait for the job's end; ask it to save and end once there is a better place for it."""
        earliest = asked = time.monotonic() + STARTING_TIME
        while True:
            try:
                return job.wait(LOOKING_PERIOD)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if self._signals or now < earliest:
                continue
            if outcome.better is None:
                outcome.better = self.places.better(place)
                if outcome.better is not None:
                    self._log(f"hosts have changed: saves, to go on with {outcome.better}")
            if outcome.better is not None and now > asked:
                # Again and again: one that comes before the training has begun is lost.
                job.send_signal(signal.SIGTERM if self.folder is None else MOVING)
                asked = now + ASKING_AGAIN

    @staticmethod
    def _watch(job: subprocess.Popen[bytes], ranks: int, outcome: Outcome) -> LaunchMonitor:
        """Watch the ranks until a monitor of theirs does."""

        def write(text: str) -> None:
            for line in text.encode().splitlines(keepends=True):
                _forward(line, outcome)

        def end(status: int) -> None:
            outcome.left = status
            job.terminate()
            try:
                job.wait(ENDING_TIME)
            except subprocess.TimeoutExpired:
                job.kill()  # ranks that wait in MPI_Init run no handler

        monitor = LaunchMonitor(job.pid, ranks, write, end)
        monitor.start()
        return monitor

    @contextlib.contextmanager
    def _forwarding_signals(self) -> Iterator[None]:
        def forward(number: int, frame: FrameType | None) -> None:
            self._signals.append(number)
            if self._job is not None and self._job.poll() is None:
                again = self._signals.count(signal.SIGINT) > 1 and number == signal.SIGINT
                self._job.send_signal(signal.SIGKILL if again else number)

        previous = {number: signal.signal(number, forward) for number in signals.STOPPING}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _start(self) -> str:
        if self.folder is None:
            return f": {shlex.join(self.command)}"
        newest = checkpoint.newest_valid(self.folder)
        return f" in {self.folder}, " + ("from the beginning" if newest is None else f"from {newest.name}")

    def _advice(self) -> str:
        return "" if self.folder is None else f" and pass --run {self.folder} to resume"

    def _log(self, text: str) -> None:
        click.echo(f"tenon launch: {text}", err=True)


def _copy(stream: IO[bytes], outcome: Outcome) -> None:
    """Copy a job's standard error line by line; record the headline of the first failure report."""
    for line in stream:
        _forward(line, outcome)


def _forward(line: bytes, outcome: Outcome) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
    if (match := _HEADLINE.search(line)) and not outcome.report:
        outcome.report = match[1].decode(errors="replace")
