"""Alternate signal stacks for threads that run oneDNN.

Some of oneDNN's kernels for float32 products (``gemm:jit:f32`` with more than 84 terms) set the stack pointer
to the start of their workspace on the heap. The frame that Linux then writes for a signal handler, three
kilobytes with wide vectors, overwrites the heap before the workspace; the process aborts some time later
(``tests/backends/onednn/test_signals.py``). Handlers installed with ``SA_ONSTACK``, as all of Python's are,
run on the thread's alternate stack instead, if it has one. This module installs one for each thread that uses
oneDNN and to the OpenMP threads that work for it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

#: Bytes of a stack; its pages are allocated when they are written.
_SIZE = 256 << 10
_DISABLED = 2


class _Stack(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


_Region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
# A CDLL on Linux, else None: what uses its functions runs on Linux only, which a type checker cannot know.
_libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
if _libc is not None:
    _libc.malloc.argtypes, _libc.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    _libc.free.argtypes, _libc.free.restype = (ctypes.c_void_p,), None


def covered() -> bool:
    """Whether the calling thread has an alternate signal stack, or cannot have one."""
    stack = _Stack()
    return _libc is None or bool(_libc.sigaltstack(None, ctypes.byref(stack)) or not stack.flags & _DISABLED)


def _cover() -> int | None:
    """Install an alternate signal stack for the calling thread and return its address."""
    start: int | None = _libc.malloc(_SIZE)
    if start:
        _libc.sigaltstack(ctypes.byref(_Stack(start, 0, _SIZE)), None)
    return start


class _Own:
    """The alternate stack of the creating thread, freed with the object."""

    def __init__(self) -> None:
        self._start = _cover()
        self._libc, self._none = _libc, _Stack(None, _DISABLED, 0)

    def __del__(self) -> None:
        self._libc.sigaltstack(ctypes.byref(self._none), None)
        self._libc.free(self._start)


_threads = threading.local()


def cover_thread() -> None:
    """Install a stack for the calling thread, unless it has one, for example that of ``faulthandler``."""
    if not covered():
        _threads.stack = _Own()


def cover_team(openmp: ctypes.CDLL | None, threads: int) -> None:
    """Install stacks, which are never freed, for the ``threads`` OpenMP threads of the calling thread."""
    if _libc is None or openmp is None or threads < 2 or not hasattr(openmp, "GOMP_parallel"):
        return

    def cover(_: object) -> None:
        if not covered():
            _cover()

    openmp.GOMP_parallel(_Region(cover), None, ctypes.c_uint(threads), ctypes.c_uint(0))
