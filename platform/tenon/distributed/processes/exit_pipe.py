"""A pipe by whose closing the monitor of a host notices the end of a rank before its launcher can.

A launcher ends all ranks when it notices that one has ended: by a connection that closes, or by SIGCHLD.
Linux closes the descriptors of an ending process in the order of their numbers, the highest first, and sends
SIGCHLD after that. So a pipe whose number is higher than those of all connections closes before the launcher
can react: of several ranks that end, the first whose pipe closes did not end because of another one.
"""

from __future__ import annotations

import contextlib
import os

LOWEST = 1000
"""The number of the pipe, or the next free one; any number where the limit of open files is lower."""


class ExitPipe:
    """A pipe that closes with this process; ``reading`` is the end that the monitor opens too."""

    def __init__(self) -> None:
        import fcntl  # absent from Windows

        self.reading, self._writing = os.pipe()
        with contextlib.suppress(OSError):
            lower, self._writing = self._writing, fcntl.fcntl(self._writing, fcntl.F_DUPFD_CLOEXEC, LOWEST)
            os.close(lower)
        self._identity = os.fstat(self._writing).st_ino

    def close(self) -> None:
        """Close the writing end: in a forked child, which may outlive its rank, or without a monitor."""
        with contextlib.suppress(OSError):
            if os.fstat(self._writing).st_ino == self._identity:  # else the program has closed it itself
                os.close(self._writing)


def open_reading(process: int, descriptor: int) -> int:
    """A descriptor of this process's own for the reading end of another; -1 if it cannot be opened."""
    try:
        return os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return -1
