"""Reductions that go on while the program computes: one thread, one communicator of its own.

MPI moves large messages only while somebody is inside a call. This thread asks for news often, then sleeps
(``messages.py``). Waiting in a blocking call would take a core away from the computation; so would MPICH's
own progress thread. How much that hides is measured by ``tests/distributed/test_hidden_communication.py``.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

from tenon.extend import Communicator, engine


class Progress:
    """Runs all-reduces on ``communicator``, which nobody else uses, in the order of their start."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._jobs: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tenon-mpi progress", daemon=True)
        self._thread.start()

    def start(self, array: Any, op: str, name: str | None, step: int | None) -> Pending:
        """Reduce ``array`` in place when those before it are done."""
        pending = Pending(array, op, name, step)
        self._jobs.put(pending)
        return pending

    def stop(self) -> None:
        """Finish what was started, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run(self._communicator)


class Pending(engine.Work):
    """An all-reduce that the progress thread runs; its error is raised by ``wait``."""

    __slots__ = ("_done", "_error", "_name", "_op", "_step")

    def __init__(self, array: Any, op: str, name: str | None, step: int | None) -> None:
        super().__init__(array)
        self._op, self._name, self._step = op, name, step
        self._done = threading.Event()
        self._error: Exception | None = None

    def run(self, communicator: Communicator) -> None:
        """Do it."""
        communicator.step = self._step
        try:
            communicator.all_reduce(self._result, self._op, self._result, name=self._name)
        except Exception as error:  # Whoever waits raises it, in the thread that asked.
            self._error = error
        self._done.set()

    def wait(self, timeout: Any = None) -> Any:
        """Block until it is done."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result

    def is_completed(self) -> bool:
        """Whether it is done."""
        return self._done.is_set()


__all__ = ["Progress"]
