"""Where the ranks of a node meet: a line of shared memory each, with a counter and two words to compare.

Waiting is reading the others' counters: 0.3 µs when they come together, where an MPI barrier takes 2. A rank
that waits longer lets others run, then sleeps between looks, so that ranks which share a core do not starve
each other, and asks now and then whether those it waits for still live.

Words alternate between two places. That is safe: whoever writes for meeting n + 2 has seen all ranks come to
n + 1, and a rank comes to n + 1 only when it has read what was written for n. Whatever is written before a
meeting in the half of a buffer with that meeting's parity may be read after it for the same reason.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

from tenon.extend import errors

LINE = 128
"""Bytes of a rank's line: two cache lines, as processors fetch them in pairs."""
SPINS = 2000
YIELDS = 1000
NAP = 5e-5
LIVENESS = 0.25
_COUNTER, _PID, _SPACE, _REPORTED, _WORDS = 0, 1, 2, 3, 4
_ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i686")
_yield = getattr(os, "sched_yield", lambda: time.sleep(0))


class Meeting:
    """``lines[r]`` is the line of rank r, as 64-bit words in memory that all of them map.

    A ``patient`` one sleeps at once: it belongs to a thread beside the one that computes.
    """

    def __init__(self, lines: Sequence[Any], rank: int, fence: Callable[[], None], patient: bool) -> None:
        self.number = 0
        self.placed = -1
        """The place that all ranks named at the last ``compare``, or -1."""
        self._mine = lines[rank]
        self._others = [(other, line) for other, line in enumerate(lines) if other != rank]
        self._fence = None if _ORDERED else fence
        self._spins = SPINS if _usable_cores() >= len(lines) else 20
        self._yields = YIELDS
        if patient:
            self._spins = self._yields = 0
        self._mine[_PID], self._mine[_SPACE] = os.getpid(), _process_space()

    def claim_report(self) -> bool:
        """Whether no rank here has said yet why the job ends; from now on one has. One at a time asks."""
        first = not self._mine[_REPORTED] and not any(line[_REPORTED] for _, line in self._others)
        self._mine[_REPORTED] = 1
        return first

    def compare(self, first: int, second: int, place: int = -1) -> bool:
        """Wait for all ranks; return whether all came with these two words.

        ``place`` is where an array lies in the memory that they share; ``placed`` tells whether all agree.
        """
        at = _WORDS + 4 * ((self.number + 1) & 1)
        mine = self._mine
        mine[at], mine[at + 1], mine[at + 2] = first, second, place
        self.wait()
        self.placed = place
        alike = True
        for _, line in self._others:
            if line[at + 2] != place:
                self.placed = -1
            if line[at] != first or line[at + 1] != second:
                alike = False  # Ranks may yet settle it, so all have to know the place.
        return alike

    def wait(self) -> None:
        """Return when all ranks have come here."""
        self.number = number = self.number + 1
        if self._fence is not None:
            self._fence()
        self._mine[_COUNTER] = number
        for rank, line in self._others:
            if line[_COUNTER] < number:
                self._wait_for(rank, line, number)
        if self._fence is not None:
            self._fence()

    def _wait_for(self, rank: int, line: Any, number: int) -> None:
        for _ in range(self._spins):
            if line[_COUNTER] >= number:
                return
        for _ in range(self._yields):
            _yield()
            if line[_COUNTER] >= number:
                return
        check = time.monotonic() + LIVENESS
        while line[_COUNTER] < number:
            time.sleep(NAP)
            if self._fence is not None:
                self._fence()
            if time.monotonic() > check:
                self._check_alive(rank, line, number)
                check = time.monotonic() + LIVENESS

    def _check_alive(self, rank: int, line: Any, number: int) -> None:
        if line[_SPACE] != self._mine[_SPACE]:
            return  # Its process numbers are not ours: another container on this host.
        try:
            os.kill(line[_PID], 0)
        except ProcessLookupError:
            raise errors.RankFailedError(
                f"local rank {rank} (process {line[_PID]}) died; the others wait for it in shared memory. "
                "Look for what killed it: dmesg shows whether memory ran out."
            ) from None
        except PermissionError:
            return  # It lives, under another user.


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _process_space() -> int:
    """A number that processes share if their process numbers mean the same."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


__all__ = ["LINE", "Meeting"]
