"""``Lane``: the buffer of one thread's records, and the thread's current module and phase."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from tenon.optim.optimizer import Optimizer
from tenon.profiler.observe.records import RELEASED, Item


class Lane:
    """Records of one thread in order of their ends; ``extend`` appends one record, atomically."""

    __slots__ = ("calls", "due", "extend", "freed", "module", "phase", "records", "steps", "tid")

    def __init__(self, due: int) -> None:
        self.tid = threading.get_native_id()
        self.records: list[Item] = []
        self.extend: Callable[[Iterable[object]], None] = self.records.extend
        #: Callback for the release of a block allocated in this thread.
        self.freed = _release_recorder(self.extend)
        #: When to call the tap's owner next, by ``perf_counter_ns``.
        self.due = due
        #: Module calls in progress: label, begin, number, and the label of the enclosing module.
        self.calls: list[tuple[str, int, int, str]] = []
        #: Optimizer steps in progress: the optimizer, begin, and the phase before.
        self.steps: list[tuple[Optimizer, int, str]] = []
        self.begin()

    def begin(self) -> None:
        """Reset to the state outside of any module, in the phase "forward"."""
        self.module = ""
        self.phase = "forward"
        self.calls.clear()
        self.steps.clear()

    def take(self) -> list[Item]:
        """Remove and return all records so far; safe while the thread continues to append."""
        taken = self.records[:]
        del self.records[: len(taken)]
        return taken


def _release_recorder(extend: Callable[[Iterable[object]], None]) -> Callable[[object], None]:
    """Return ``freed(block)``, which records the release of a block."""
    now = time.perf_counter_ns

    def freed(block: object) -> None:
        extend((RELEASED, now(), block))

    return freed
