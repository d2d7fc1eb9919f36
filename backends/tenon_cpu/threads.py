"""Run a NumPy function on several cores: a range of work is cut into one piece per thread.

NumPy's own loops and compiled kernels run on the thread that calls them and release the interpreter lock;
only BLAS and oneDNN have threads. ``split`` runs a piece on each of a few waiting threads, and limits BLAS to
one thread meanwhile: threads that each multiply their own matrices scale fully, while two that share one
multi-threaded BLAS wait for each other (measured on a 64-image convolution: 9.5 ms against 18 on one thread
and 26 with both kinds of threads).

There is one number of threads, ``usable()``: BLAS's own at the start, so that ``OMP_NUM_THREADS`` and
``OPENBLAS_NUM_THREADS`` decide; ``set_count`` changes it for BLAS, for these threads, and for the listeners
that ``on_change`` registers, such as oneDNN. A worker of OpenMP that still spins after its last task does not
delay these threads: Linux schedules a thread that wakes first (product on two threads, then GELU split: 3.23
ms, against 2.47 + 0.73 each by itself).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar, TypeVarTuple

import numpy as np
import numpy.typing as npt

from tenon.extend import errors

_R = TypeVar("_R")
_Ts = TypeVarTuple("_Ts")

_PREFIXES = (("scipy_openblas", "64_"), ("scipy_openblas", ""), ("openblas", "64_"), ("openblas", ""))


class Blas:
    """The thread count of the OpenBLAS that NumPy loaded; 1 and unchangeable where none is found."""

    def __init__(self) -> None:
        self.found = False
        self.get: Callable[[], int] = lambda: 1
        self.set: Callable[[int], object] = lambda count: None
        for path in loaded_libraries("openblas"):
            library = ctypes.CDLL(path)
            for prefix, suffix in _PREFIXES:
                getter = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                setter = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                if getter is not None and setter is not None:
                    setter.argtypes, setter.restype = (ctypes.c_int,), None
                    self.get, self.set, self.found = getter, setter, True
                    return


def loaded_libraries(name: str) -> list[str]:
    """Files of the shared libraries in this process whose path holds ``name`` (Linux only)."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return sorted({line.split()[-1] for line in maps if name in line and ".so" in line})
    except OSError:
        return []


#: A piece of work: the function, and the range to call it with; None ends a thread.
_Task = tuple[Callable[[int, int], object], int, int] | None


class Pool:
    """Threads that wait for pieces of work; created at the first use, and again in a forked child."""

    def __init__(self, size: int | None = None) -> None:
        self.blas = Blas()
        self.size = size or max(1, self.blas.get())
        self.lock = threading.Lock()
        self.tasks: SimpleQueue[_Task] = SimpleQueue()
        self.done: SimpleQueue[BaseException | None] = SimpleQueue()
        for _ in range(self.size - 1):
            threading.Thread(target=self._wait, name="tenon-cpu", daemon=True).start()

    def _wait(self) -> None:
        # Floating-point warnings are a setting of each thread; eager ops give none.
        np.seterr(all="ignore")
        while (task := self.tasks.get()) is not None:
            failure = None
            try:
                task[0](task[1], task[2])
            except BaseException as error:
                failure = error
            del task  # or the arrays that it worked on would live until the next one
            self.done.put(failure)
            del failure

    def close(self) -> None:
        """End the threads, once they have done the work in the queue."""
        for _ in range(self.size - 1):
            self.tasks.put(None)

    def run(self, work: Callable[[int, int], object], count: int) -> None:
        """Call ``work`` on all pieces of ``range(count)``; the calling thread takes the last."""
        pieces = min(self.size, count)
        bounds = [count * i // pieces for i in range(pieces + 1)]
        threads = self.blas.get()
        self.blas.set(1)
        failures: list[BaseException] = []
        try:
            for i in range(pieces - 1):
                self.tasks.put((work, bounds[i], bounds[i + 1]))
            try:
                work(bounds[-2], bounds[-1])
            except BaseException as error:
                failures.append(error)
            for _ in range(pieces - 1):
                error_or_none = self.done.get()
                if error_or_none is not None:
                    failures.append(error_or_none)
        finally:
            self.blas.set(threads)
        if failures:
            raise failures[-1]


_pool: Pool | None = None
_pool_lock = threading.Lock()


def _forget() -> None:
    """Drop the pool, in a forked child: it has none of the parent's threads."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def pool() -> Pool:
    """The process's pool, created at the first call."""
    global _pool
    if _pool is None:
        with _pool_lock:
            if _pool is None:
                _pool = Pool()
    return _pool


_listeners: list[Callable[[int], None]] = []


def on_change(listener: Callable[[int], None]) -> Callable[[int], None]:
    """Register ``listener(count)``, to be called when the number of threads changes; return it."""
    _listeners.append(listener)
    return listener


def usable() -> int:
    """The number of threads that kernels may use."""
    return (_pool or pool()).size


def set_count(count: int) -> None:
    """Use ``count`` threads from now on, once running work has ended; UnsupportedError without OpenBLAS."""
    global _pool
    old = pool()
    if not old.blas.found:
        raise errors.UnsupportedError(
            "set_num_threads: NumPy's BLAS in this process is not an OpenBLAS whose number of threads can be"
            " set. Set TENON_NUM_THREADS before starting Python instead."
        )
    with _pool_lock, old.lock:
        old.blas.set(count)
        _pool = Pool(count)
        old.close()
    for listener in _listeners:
        listener(count)


def split(work: Callable[[int, int], object], count: int, least: int = 1) -> None:
    """Call ``work(start, stop)`` on pieces that make up ``range(count)``, each at least ``least`` long.

    It is one call on the caller's thread where there is too little to share, or where the pool is busy with
    work of another thread of the program, or of the work that this call is part of.
    """
    if count < 2 * least or count < 2:
        work(0, count)
        return
    own = _pool or pool()
    if own.size == 1 or not own.lock.acquire(blocking=False):
        work(0, count)
        return
    try:
        own.run(work, count)
    finally:
        own.lock.release()


def alone(work: Callable[[*_Ts], _R], *args: *_Ts) -> _R:
    """Return ``work(*args)`` with BLAS on one thread: where a second one would wake too late to help."""
    own = _pool or pool()
    if own.size == 1 or not own.lock.acquire(blocking=False):
        return work(*args)
    threads = own.blas.get()
    own.blas.set(1)
    try:
        return work(*args)
    finally:
        own.blas.set(threads)
        own.lock.release()


class Scratch(threading.local):
    """Reused memory of each thread, by name; a buffer past ``limit`` bytes is not kept."""

    limit = 8 << 20

    def __init__(self) -> None:
        self.buffers: dict[str, np.ndarray] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        """An uninitialised array, in the memory of the last one of this name."""
        size = np.dtype(dtype).itemsize
        for s in shape:
            size *= s
        buffer = self.buffers.get(name)
        if buffer is None or buffer.nbytes < size:
            buffer = np.empty(max(size, 64), np.uint8)
            if size <= self.limit:
                self.buffers[name] = buffer
        return buffer[:size].view(dtype).reshape(shape)


scratch = Scratch()
