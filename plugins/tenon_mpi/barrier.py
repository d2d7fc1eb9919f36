"""A barrier in shared memory: each rank of a node owns a line with a counter and a word to compare.

A rank publishes its counter and polls the others': 0.3 µs when all arrive together, where an MPI barrier
takes 2. It spins first, then yields the processor, then sleeps between polls, so that ranks which share a
core do not starve each other; while it sleeps it checks at intervals that the process it waits for is alive.

The words are double-buffered. That is safe: a rank that writes for barrier n + 2 has seen all ranks arrive at
n + 1, and a rank arrives at n + 1 only when it has read what was written for n. For the same reason, data
written before a barrier into the half of a double buffer with that barrier's parity may be read after it.

``shared.py`` builds the collectives on it.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence

from tenon.extend import engine, errors

LINE = 128
"""Bytes of a rank's line: two cache lines, as processors prefetch them in pairs."""
UNCOUNTED = 10
"""Polls before a wait is timed: less than 1 us, so that ranks that arrive together do not pay for a clock."""
SPINS = 2000
"""Polls before a waiting rank begins to yield its core."""
YIELDS = 1000
"""Polls with a yield between them before it begins to sleep."""
SLEEP_SECONDS = 5e-5
LIVENESS_SECONDS = 0.25
"""How often a sleeping rank checks that the process it waits for is alive."""
#: The counter and the words of both barriers in turn are in one cache line, what is rarely read in the other.
_COUNTER, _WORDS, _PID, _NAMESPACE, _REPORTED = 0, 1, 8, 9, 10
_ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i686")
_yield = getattr(os, "sched_yield", lambda: time.sleep(0))


class SharedBarrier:
    """A barrier of the ranks whose ``lines`` of shared memory, ``lines[r]`` for rank r, all of them map.

    A line is a sequence of 64-bit words. ``fence`` is called around writes on processors that reorder stores
    (all but x86). With ``background`` the rank sleeps without spinning first: the barrier belongs to a thread
    that must leave the core to the one that computes. ``clock`` counts how long the rank waits.
    """

    def __init__(
        self,
        lines: Sequence[memoryview[int]],
        rank: int,
        fence: Callable[[], None],
        background: bool,
        clock: engine.Clock | None = None,
    ) -> None:
        self.number = 0
        self.common_position = -1
        """The position that all ranks passed to the last ``compare``; -1 where they differ."""
        self._lines, self._mine = lines, lines[rank]
        self._others = [(other, line) for other, line in enumerate(lines) if other != rank]
        self._fence = None if _ORDERED else fence
        self._clock = engine.Clock() if clock is None else clock
        self._spins = SPINS if _usable_cores() >= len(lines) else 20
        self._yields = YIELDS
        if background:
            self._spins = self._yields = 0
        self._mine[_PID], self._mine[_NAMESPACE] = os.getpid(), _pid_namespace()

    def claim_report(self) -> bool:
        """Whether this rank is the first of the node to report why the job ends; marks it as reported.

        Callers exclude each other: only one rank of a node calls this at a time.
        """
        first = not self._mine[_REPORTED] and not any(line[_REPORTED] for _, line in self._others)
        self._mine[_REPORTED] = 1
        return first

    def compare(self, word: int, position: int = -1) -> bool:
        """Wait for all ranks; return whether all of them passed the same 64-bit ``word``.

        ``position`` is that of an array in a shared window (``Windows.position_of``), or -1; afterwards
        ``common_position`` is that position if all ranks passed the same one, else -1.
        """
        # Not by ``wait``, which would take 0.1 us more.
        self.number = number = self.number + 1
        offset = _WORDS + 2 * (number & 1)
        fence, own_line = self._fence, self._mine
        own_line[offset], own_line[offset + 1] = word, position
        if fence is not None:
            fence()
        own_line[_COUNTER] = number
        common, equal = position, True
        for rank, line in self._others:
            if line[_COUNTER] < number:
                self._wait_for(rank, line, number)
            if fence is not None:
                fence()
            if line[offset] != word:
                equal = False  # No early exit: ``common_position`` has to be the same on all ranks.
            if line[offset + 1] != position:
                common = -1
        self.common_position = common
        return equal

    def words(self) -> list[int]:
        """The words that the ranks passed to the last ``compare``, if it was this rank's last barrier."""
        offset = _WORDS + 2 * (self.number & 1)
        return [line[offset] for line in self._lines]

    def wait(self) -> None:
        """Block until all ranks have called it as often as this one."""
        self.number = number = self.number + 1
        if self._fence is not None:
            self._fence()
        self._mine[_COUNTER] = number
        for rank, line in self._others:
            if line[_COUNTER] < number:
                self._wait_for(rank, line, number)
        if self._fence is not None:
            self._fence()

    def _wait_for(self, rank: int, line: memoryview[int], number: int) -> None:
        for _ in range(UNCOUNTED):
            if line[_COUNTER] >= number:
                return
        clock = self._clock
        begun = clock.begin()
        try:
            self._poll(rank, line, number)
        finally:
            clock.end(begun)

    def _poll(self, rank: int, line: memoryview[int], number: int) -> None:
        for _ in range(self._spins):
            if line[_COUNTER] >= number:
                return
        for _ in range(self._yields):
            _yield()
            if line[_COUNTER] >= number:
                return
        check = time.monotonic() + LIVENESS_SECONDS
        while line[_COUNTER] < number:
            time.sleep(SLEEP_SECONDS)
            if self._fence is not None:
                self._fence()
            if time.monotonic() > check:
                self._check_alive(rank, line, number)
                check = time.monotonic() + LIVENESS_SECONDS

    def _check_alive(self, rank: int, line: memoryview[int], number: int) -> None:
        if line[_NAMESPACE] != self._mine[_NAMESPACE]:
            return  # Another PID namespace, such as a container on this host: its PIDs mean nothing here.
        try:
            os.kill(line[_PID], 0)
        except ProcessLookupError:
            raise errors.RankFailedError(
                f"local rank {rank} (process {line[_PID]}) died; the others wait for it in shared memory. "
                "Look for what killed it: dmesg shows whether memory ran out."
            ) from None
        except PermissionError:
            return  # Alive, owned by another user.


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pid_namespace() -> int:
    """The identity of this process's PID namespace; 0 where the system has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


__all__ = ["LINE", "SharedBarrier"]
