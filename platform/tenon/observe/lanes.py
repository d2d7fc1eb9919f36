"""``Lane``: where one thread's records go, and where that thread is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any


class Lane:
    """Records of one thread in the order in which things ended: ``extend`` adds one, all items at once."""

    __slots__ = ("calls", "due", "extend", "module", "phase", "records", "steps", "tid")

    def __init__(self, due: int) -> None:
        self.tid = threading.get_native_id()
        self.records: list[Any] = []
        self.extend: Callable[[Iterable[Any]], None] = self.records.extend
        #: When the tap's owner wants to be called next.
        self.due = due
        #: Module calls in progress: label, begin, number, and what they were called in.
        self.calls: list[tuple[str, int, int, str]] = []
        #: Optimizers' steps in progress: the optimizer, begin, and the phase before.
        self.steps: list[tuple[Any, int, str]] = []
        self.begin()

    def begin(self) -> None:
        """This thread is nowhere yet."""
        self.module = ""
        self.phase = "forward"
        self.calls.clear()
        self.steps.clear()

    def take(self) -> list[Any]:
        """All records so far, which are then gone from here; the thread may go on meanwhile."""
        taken = self.records[:]
        del self.records[: len(taken)]
        return taken
