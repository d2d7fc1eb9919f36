"""Processes that end with the one that started them: killing ``tenon launch`` leaves no rank behind."""

from __future__ import annotations

import ctypes
import signal
import sys


def end_with_parent() -> None:
    """Let the kernel send this process SIGTERM when its parent dies; Linux alone can do so."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


__all__ = ["end_with_parent"]
