"""Graceful shutdown on signals: Ctrl-C, preemption by a scheduler, an approaching time limit.

After the first signal the step completes; the ranks agree to stop in the step's own reduction, or after an
epoch, save, and exit with ``128 + signal``, the status by which shells, Slurm and Kubernetes recognize an end
by signal. Launchers and schedulers often signal every process, some of them twice: only a second Ctrl-C, more
than ``REPEAT_SECONDS`` later, interrupts at once.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

from tenon.config import environment
from tenon.distributed.processes import failure
from tenon.distributed.processes.startup import LAUNCH
from tenon.training.hook_watch import HookWatch
from tenon.training.session import Session

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))
REPEAT_SECONDS = 0.5
"""A second SIGINT within this time is the same Ctrl-C, forwarded by the launcher. MPICH's would kill the
ranks: the monitor (``distributed/processes/host_monitor.py``) holds it back until they have saved."""


_early: list[int] = []


def keep_early() -> None:
    """Let a SIGUSR1 that comes before the training begins stop it after the first step.

    Only among ranks of ``tenon launch``, which may send it at any time to go on with other ranks.
    """
    if environment(LAUNCH) and hasattr(signal, "SIGUSR1"):
        with contextlib.suppress(ValueError):  # not the main thread, which alone may install handlers
            signal.signal(signal.SIGUSR1, lambda number, frame: _early.append(number))


@contextlib.contextmanager
def stopping(session: Session, watch: HookWatch) -> Iterator[None]:
    """Install handlers that set ``session.stopping`` to the signal's number; restore the former on exit.

    They raise TrainingError in a hook that ``watch`` finds overdue.
    """
    first = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if watch.answers(frame):
            return
        now = time.monotonic()
        if session.stopping and number == signal.SIGINT and now - first > REPEAT_SECONDS:
            raise KeyboardInterrupt
        if not session.stopping:
            session.stopping, first = number, now

    previous = {}
    session.stopping = _early[0] if _early else session.stopping
    monitor = failure.monitor()
    former = -1
    try:
        for number in STOPPING:
            previous[number] = signal.signal(number, handle)
        former = -1 if monitor is None else monitor.listen()
    except ValueError:  # not the main thread, which alone may install handlers
        previous = {}
    try:
        yield
    finally:
        if monitor is not None:
            monitor.stop_listening(former)
        for number, handler in previous.items():
            signal.signal(number, handler)


def name_of(number: int) -> str:
    """The signal's name for messages.

    >>> name_of(15)
    'SIGTERM'
    """
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def exit_status(number: int) -> int:
    """The exit status of a program that signal ``number`` ended.

    >>> exit_status(15)
    143
    """
    return 128 + number
