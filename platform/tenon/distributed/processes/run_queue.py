"""``RunQueue``: for how long the main thread of this process had work, but no core."""

from __future__ import annotations

import os

_SCHEDULED = "/proc/self/schedstat"
"""Of the main thread: nanoseconds on a core, nanoseconds in the queue for one, and the number of turns."""


class RunQueue:
    """Reads Linux's count; elsewhere it is 0."""

    def __init__(self) -> None:
        try:
            self._file = os.open(_SCHEDULED, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def close(self) -> None:
        """Close the file; ``read`` returns 0 from then on."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def read(self) -> int:
        """Nanoseconds since the process began; 2 us."""
        if self._file < 0:
            return 0
        try:
            return int(os.pread(self._file, 96, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0
