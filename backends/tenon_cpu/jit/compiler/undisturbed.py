"""Work that no signal may leave in the middle: LLVM's objects are freed twice, or used half made, where
Ctrl-C or a timer raises between two steps, and the process ends in a segmentation fault.

Python runs handlers of signals in the main thread only. So such work gets a thread of its own, for which the
main thread waits: an exception there ends the waiting, and the work is completed beside it. It waits for a
lock: when a signal ends ``Thread.join``, Python 3.11 takes the thread for one that has ended, and a program
that ends then would be torn down while it compiles.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LATEST = 0.1
"""Seconds until a signal is answered that comes just before the waiting begins: it does not end that."""


def undisturbed(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """``work``, whole. It has to take the locks that it needs itself: its thread is another."""

    @functools.wraps(work)
    def done(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if threading.current_thread() is not threading.main_thread():
            return work(*args, **kwargs)
        results: list[_R] = []
        failures: list[BaseException] = []
        under_way = threading.Lock()

        def run() -> None:
            try:
                results.append(work(*args, **kwargs))
            except BaseException as error:  # raised below, where it was asked for
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

    return done
