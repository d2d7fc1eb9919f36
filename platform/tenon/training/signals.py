"""Being asked to stop: Ctrl-C, a scheduler's preemption, a time limit that comes near.

The first signal lets the step finish; the ranks then agree on it in the step's own reduction, save, and leave
with ``128 + signal``, the status by which shells, Slurm and Kubernetes know a program that a signal ended.
Launchers and schedulers often signal every process, some of them twice: only another Ctrl-C, a moment later,
means "at once".
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from typing import Any

from tenon.training.session import Session

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))
IMPATIENCE = 0.5
"""Seconds within which a second SIGINT is the same Ctrl-C, come by another way."""


@contextlib.contextmanager
def stopping(session: Session) -> Iterator[None]:
    """Inside, signals set ``session.stopping`` to their number."""
    first = 0.0

    def ask(number: int, frame: Any) -> None:
        nonlocal first
        now = time.monotonic()
        if session.stopping and number == signal.SIGINT and now - first > IMPATIENCE:
            raise KeyboardInterrupt
        if not session.stopping:
            session.stopping, first = number, now

    previous = {}
    try:
        for number in STOPPING:
            previous[number] = signal.signal(number, ask)
    except ValueError:  # not the main thread: signals belong to somebody else
        previous = {}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def name_of(number: int) -> str:
    """What a person calls it.

    >>> name_of(15)
    'SIGTERM'
    """
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def exit_status(number: int) -> int:
    """The status of a program that signal ``number`` ended.

    >>> exit_status(15)
    143
    """
    return 128 + number
