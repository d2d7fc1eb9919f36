"""``tenon launch``: start the ranks, and restart them from the last checkpoint when they fail.

One attempt is one ``mpirun``. This process supervises: it forwards signals, copies standard error through to
find the report of a failure (``distributed/processes/report.py``), and logs the outcome of each attempt.
There is no restart after Ctrl-C, a preemption (``signals.py``) or an invalid configuration.
"""

from __future__ import annotations

import contextlib
import os
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
from tenon.distributed.processes.installed_programs import installed_program
from tenon.distributed.processes.launch_monitor import LaunchMonitor
from tenon.distributed.processes.orphans import end_with_parent
from tenon.distributed.processes.startup import ATTEMPT, LAUNCH
from tenon.distributed.processes.watchdog import STALLED
from tenon.errors import LaunchError, TenonError
from tenon.training import checkpoint, command, signals
from tenon.training.session import fresh_folder

_HEADLINE = re.compile(rb"=== tenon: (rank \d+ of \d+ on host .*) ===")
_GONE = re.compile(
    r" (was killed by SIG\w+(, perhaps as .*)?|left with exit status .*|ended without a report)$"
)
_MEMORY = "; dmesg shows whether memory ran out"
ENDING_TIME = 2.0
"""Seconds that the launcher gets to end its ranks before it is killed."""
_FINAL = {signals.exit_status(number) for number in signals.STOPPING} | {command.REFUSED}


@dataclass
class Outcome:
    """The outcome of one attempt: its exit status, and the headline of its failure report if there is one."""

    status: int = 0
    seconds: float = 0.0
    report: str = ""
    left: int = 0
    """The exit status of a rank that left before its ``import tenon``, for which the job was ended."""

    @property
    def lost_a_rank(self) -> bool:
        """Whether a rank was killed or stalled, so that fewer ranks may succeed."""
        gone = _GONE.search(self.report) is not None  # a monitor's report: the rank could not report itself
        return self.status == STALLED or self._killed or gone or not self.report

    @property
    def _killed(self) -> bool:
        """Whether a rank died of SIGKILL; with Open MPI another rank may have reported that first."""
        return self.status == signals.exit_status(signal.SIGKILL)

    def describe(self) -> str:
        """The outcome as a clause for the log."""
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
        memory = _MEMORY if number == signal.SIGKILL else ""
        return f"a rank was killed by {signal.Signals(number).name}{memory}"


class Supervisor:
    """Runs ``command`` on all ranks through ``launcher``, and reruns it when it fails.

    ``folder`` is the run folder, None for scripts.
    """

    def __init__(self, command: Sequence[str], launcher: Sequence[str], folder: Path | None) -> None:
        self.command = list(command)
        self.launcher = list(launcher)
        self.folder = folder
        self._job: subprocess.Popen[bytes] | None = None
        self._signals: list[int] = []
        self._identifier = secrets.token_hex(8)

    def run(self, ranks: int, restarts: int, min_ranks: int) -> int:
        """Make up to ``1 + restarts`` attempts; return the exit status of the last.

        After losing a rank the next attempt has one fewer, but at least ``min_ranks``.
        """
        with self._forwarding_signals():
            for number in range(1, restarts + 2):
                self._log(f"attempt {number} of {restarts + 1}, {_count(ranks)}{self._start()}")
                outcome = self._attempt(ranks, number)
                if outcome.status == 0:
                    self._log(f"done after {number} attempt{'s' if number > 1 else ''}")
                    return 0
                self._log(f"attempt {number} {outcome.describe()}")
                if self._signals and not outcome.report and outcome.status not in _FINAL:
                    # Open MPI's mpirun forwards signals, and then exits with a status of its own.
                    outcome.status = signals.exit_status(self._signals[0])
                if self._signals or outcome.status in _FINAL:
                    break
                if outcome.lost_a_rank:
                    ranks = max(min_ranks, ranks - 1)
            else:
                self._log(f"no attempts left; raise --max-restarts{self._advice()}")
            return outcome.status

    def _attempt(self, ranks: int, number: int) -> Outcome:
        started = time.monotonic()
        outcome = Outcome()
        launcher = [*self.launcher, "-n", str(ranks)] if ranks > 1 else []
        self._job = subprocess.Popen(
            [*launcher, *self.command],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**process_environment(), ATTEMPT: str(number), LAUNCH: self._identifier},
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        reader = threading.Thread(target=_copy, args=(self._job.stderr, outcome), daemon=True)
        reader.start()
        monitor = self._watch(self._job, ranks, outcome) if launcher else None
        status = self._job.wait()
        if monitor is not None:
            monitor.stop()
        reader.join(1.0)  # a daemon of the ranks may still have the pipe open
        outcome.status = outcome.left or (128 - status if status < 0 else status)
        outcome.seconds = time.monotonic() - started
        return outcome

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


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-n", "ranks", type=click.IntRange(1), required=True, metavar="N", help="Number of ranks.")
@click.option(
    "--max-restarts", type=click.IntRange(0), default=0, metavar="K", help="Attempts after the first; 0."
)
@click.option(
    "--min-ranks",
    type=click.IntRange(1),
    metavar="M",
    help="After a rank was killed or stalled, continue with one fewer, down to M; by default never.",
)
@click.option(
    "--mpirun", "launcher", metavar="COMMAND", help='How ranks are started, e.g. "mpirun -f hosts".'
)
@click.argument("target", metavar="SCRIPT.py | FILE.toml | RECIPE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(
    ranks: int,
    max_restarts: int,
    min_ranks: int | None,
    launcher: str | None,
    target: str,
    arguments: tuple[str, ...],
) -> None:
    """Start N ranks, and start them again from the last checkpoint if they fail.

    A FILE.toml or RECIPE takes the arguments of `tenon train`; its ranks resume from the newest checkpoint
    of the run folder. A SCRIPT loads its own checkpoints; TENON_ATTEMPT is the number of the attempt, from 1.
    """
    try:
        rank_command, folder = _command(target, arguments)
        launcher_command = find_launcher(launcher) if ranks > 1 else []
    except TenonError as error:
        command.refuse(error)
    lowest = ranks if min_ranks is None else min(min_ranks, ranks)
    sys.exit(Supervisor(rank_command, launcher_command, folder).run(ranks, max_restarts, lowest))


def _command(target: str, arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """The command line of each rank, and the run folder (None for a script)."""
    if target.endswith(".py"):
        if not os.path.isfile(target):
            raise LaunchError(f"the script {target!r} does not exist in {os.getcwd()}.")
        return [sys.executable, "-m", "tenon.distributed", target, *arguments], None
    options = command.train.make_context("tenon launch", [target, *arguments]).params
    if options["resume"] is not None or options["show_config"]:
        raise LaunchError("tenon launch takes neither --resume nor --show-config; resume with --run FOLDER.")
    folder, extra = options["folder"], []
    if folder is None:
        folder = fresh_folder(command.resolve(target, options["overrides"], None)[0])
        extra = ["--run", str(folder)]
    return [sys.executable, "-m", "tenon.cli", "train", target, *arguments, *extra], folder


def find_launcher(command: str | None = None) -> list[str]:
    """The command line of the launcher: ``command``, or ``mpirun`` next to this Python, or on the PATH."""
    if command is not None:
        return shlex.split(command)
    path = installed_program("mpirun")
    if path is None:
        raise LaunchError(
            "mpirun was found neither next to this Python nor on the PATH. Run: pip install"
            " 'tenon-platform[mpich]', or name another launcher with --mpirun."
        )
    return [path]


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


def _count(ranks: int) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"
