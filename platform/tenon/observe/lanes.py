"""``Lane``: where one thread's records go, and where that thread is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from tenon.observe.records import RELEASED


class Lane:
    """Records of one thread in the order in which things ended: ``extend`` adds one, all items at once."""

    __slots__ = ("calls", "due", "extend", "freed", "module", "phase", "records", "steps", "tid")

    def __init__(self, due: int) -> None:
        self.tid = threading.get_native_id()
        self.records: list[Any] = []
        self.extend: Callable[[Iterable[Any]], None] = self.records.extend
        #: What is called at the end of a block that was taken here.
        self.freed = _freeing(self.extend)
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


def _freeing(extend: Callable[[Iterable[Any]], None]) -> Callable[[Any], None]:
    """``freed(block)``, which leaves its record."""
    now = time.perf_counter_ns

    def freed(block: Any) -> None:
        extend((RELEASED, now(), block))

    return freed
