"""The memory of this process, as the system counts it."""

from __future__ import annotations

import contextlib
import resource
import sys


def resident() -> int:
    """Bytes that the process has now; where ``/proc`` is missing, the most that it ever had."""
    return _status("VmRSS")


def peak() -> int:
    """The most bytes that the process had since ``reset_peak``, or ever."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Begin a new peak, where the system can."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as control:
        control.write("5")


def _status(field: str) -> int:
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            found = next(line for line in status if line.startswith(field + ":"))
            return int(found.split()[1]) * 1024
    except FileNotFoundError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
