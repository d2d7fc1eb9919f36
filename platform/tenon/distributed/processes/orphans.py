"""Terminate a process together with its parent: killing ``tenon launch`` leaves no rank running."""

from __future__ import annotations

import ctypes
import signal
import sys


def end_with_parent() -> None:
    """Ask the kernel to send this process SIGTERM when its parent ends; does nothing except on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


__all__ = ["end_with_parent"]
