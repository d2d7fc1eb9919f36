"""The memory of this process, as the operating system reports it."""

from __future__ import annotations

import contextlib
import os
import resource
import sys


def resident() -> int:
    """Return the resident bytes of the process; without ``/proc`` their peak."""
    return _status("VmRSS")


def peak() -> int:
    """Return the peak of resident bytes since ``reset_peak``, or since the start."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Reset the peak, where the system supports that."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as control:
        control.write("5")


def _status(field: str) -> int:
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            row = next(line for line in status if line.startswith(field + ":"))
            return int(row.split()[1]) * 1024
    except FileNotFoundError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def available() -> int:
    """Return the bytes that programs may still take on this machine; without ``/proc`` all its memory."""
    try:
        with open("/proc/meminfo", encoding="ascii") as info:
            row = next(line for line in info if line.startswith("MemAvailable:"))
            return int(row.split()[1]) * 1024
    except (FileNotFoundError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
