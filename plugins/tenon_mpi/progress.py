"""Overlap reductions with computation: a progress thread with a communicator of its own.

MPI progresses large messages only while some thread is inside an MPI call. This thread polls often, then
sleeps (``messages.py``). Waiting in a blocking call would take a core away from the computation; so would
MPICH's own progress thread. How much communication that hides is measured by
``tests/distributed/test_hidden_communication.py``.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeAlias

import numpy as np

from tenon.extend import Communicator, engine

#: A collective to be called with the communicator of the progress thread.
Perform: TypeAlias = Callable[[Communicator], object]


class Progress:
    """A thread that runs collectives in the order they were started, on a ``communicator`` only it uses."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._jobs: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tenon-mpi progress", daemon=True)
        self._thread.start()

    def start(self, result: np.ndarray, perform: Perform, clock: engine.Clock, step: int | None) -> Pending:
        """Queue ``perform(communicator)`` and return its handle, of ``result``; ``clock`` times its wait."""
        pending = Pending(result, perform, clock, step)
        self._jobs.put(pending)
        return pending

    def stop(self) -> None:
        """Complete the queued reductions, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run(self._communicator)


class Pending(engine.Work):
    """A queued collective; ``wait`` raises the exception that it raised in the progress thread."""

    __slots__ = ("_clock", "_context", "_done", "_error", "_perform", "_step")

    def __init__(self, result: np.ndarray, perform: Perform, clock: engine.Clock, step: int | None) -> None:
        super().__init__(result)
        self._perform: Perform | None = perform
        self._clock, self._step = clock, step
        self._context = copy_context()  # whoever observes the calls of the thread that starts it
        self._done = threading.Event()
        self._error: Exception | None = None

    def run(self, communicator: Communicator) -> None:
        """Perform the collective; called in the progress thread."""
        communicator.step = self._step
        perform, self._perform = self._perform, None
        assert perform is not None  # a handle is queued once
        try:
            self._context.run(perform, communicator)
        except Exception as error:  # Re-raised by `wait`, in the thread that started it.
            self._error = error
        self._done.set()

    def wait(self, timeout: object = None) -> np.ndarray:
        """Block until the collective has completed and return its result."""
        if not self._done.is_set():
            with self._clock.waiting():
                self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result

    def is_completed(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._done.is_set()


__all__ = ["Progress"]
