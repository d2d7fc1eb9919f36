"""Room on Python's stack for backward passes inside of backward passes.

A custom Function may run a pass in its ``backward``, whose Function may run another: each takes a dozen of
Python's thousand frames. torch goes on in another thread, where everything of this thread's own would be
missing; frames of Python's take no room on the machine's stack, so more of them are allowed instead.
"""

from __future__ import annotations

import sys
import threading

#: So many passes inside of each other get so many frames more.
EVERY, FRAMES = 25, 1000
#: Where a pass that never ends is a RecursionError after all.
_LAST = 100_000


class _Room:
    """How many passes hold more frames, and the limit without them; of all threads, as the limit is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holding = 0
        self._limit = 0

    def take(self) -> None:
        """Allow more frames."""
        with self._lock:
            now = sys.getrecursionlimit()
            if not self._holding:
                self._limit = now
            self._holding += 1
            sys.setrecursionlimit(min(now + FRAMES, max(now, _LAST)))

    def leave(self) -> None:
        """The limit as before, once nobody holds more."""
        with self._lock:
            self._holding -= 1
            if not self._holding:
                sys.setrecursionlimit(self._limit)


ROOM = _Room()
