"""The text of generated code, registered so that tracebacks and debuggers show it."""

from __future__ import annotations

import linecache
import weakref


def remember(filename: str, source: str) -> None:
    """Register ``source`` under ``filename``, replacing the previous text."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)


def forget_with(owner: object, filename: str) -> None:
    """Remove the text of ``filename`` when ``owner`` is garbage-collected."""
    weakref.finalize(owner, linecache.cache.pop, filename, None).atexit = False
