"""Text of generated code, which tracebacks and debuggers show for as long as the code lives."""

from __future__ import annotations

import linecache
import weakref
from typing import Any


def remember(filename: str, source: str) -> None:
    """Let tracebacks find ``source`` under ``filename``, in place of what was there."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)


def forget_with(owner: Any, filename: str) -> None:
    """Drop the text of ``filename`` when ``owner`` goes."""
    weakref.finalize(owner, linecache.cache.pop, filename, None).atexit = False
