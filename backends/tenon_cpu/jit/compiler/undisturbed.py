"""Protect work from exceptions of signal handlers: if Ctrl-C or a timer raises between two steps of LLVM, its
objects are freed twice or used half initialised, and the process ends in a segmentation fault.

Python runs signal handlers in the main thread only. So such work gets a thread of its own, for which the
main thread waits: an exception there ends the waiting, while the work is completed in its thread. It waits
for a lock: when a signal ends ``Thread.join``, Python 3.11 takes the thread for one that has ended, and a
program that exits then would be torn down while it compiles.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LATEST = 0.1
"""The longest delay in seconds of a signal that arrives just before the main thread begins to wait."""


def undisturbed(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate ``work`` to run in another thread if called in the main one; it must take its locks itself."""

    @functools.wraps(work)
    def run_aside(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if threading.current_thread() is not threading.main_thread():
            return work(*args, **kwargs)
        results: list[_R] = []
        failures: list[BaseException] = []
        under_way = threading.Lock()

        def run() -> None:
            try:
                results.append(work(*args, **kwargs))
            except BaseException as error:  # raised below, in the caller's thread
                failures.append(error)
            finally:
                under_way.release()

        under_way.acquire()
        threading.Thread(target=run, name="tenon-compiler").start()
        while not under_way.acquire(timeout=_LATEST):
            pass
        if failures:
            raise failures[0]
        return results[0]

    return run_aside
