"""Raise Python's recursion limit for nested (reentrant) backward passes.

A custom Function may run a backward pass in its ``backward``, and so on: each level takes a dozen of Python's
thousand frames. torch continues in another thread, which would lack this thread's thread-local state; Python
frames take no space on the C stack, so the recursion limit is raised instead.
"""

from __future__ import annotations

import sys
import threading

#: Every ``EVERY`` nested passes raise the limit by ``FRAMES``.
EVERY, FRAMES = 25, 1000
#: The upper bound, so that infinite recursion still is a RecursionError.
_LAST = 100_000


class _Room:
    """The number of raises in effect, and the original limit; process-wide, as the limit is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holding = 0
        self._limit = 0

    def take(self) -> None:
        """Raise the limit by ``FRAMES``."""
        with self._lock:
            now = sys.getrecursionlimit()
            if not self._holding:
                self._limit = now
            self._holding += 1
            sys.setrecursionlimit(min(now + FRAMES, max(now, _LAST)))

    def leave(self) -> None:
        """Undo one ``take``; the last one restores the original limit."""
        with self._lock:
            self._holding -= 1
            if not self._holding:
                sys.setrecursionlimit(self._limit)


ROOM = _Room()
