"""The process's oneDNN runtime: engine, per-thread streams and scratch memory, number of threads.

oneDNN has OpenMP threads of its own. Their number is that of ``tenon_cpu.threads``, so ``OMP_NUM_THREADS``
and ``OPENBLAS_NUM_THREADS`` control both. OpenMP keeps the number per calling thread; for a worker of
``tenon_cpu.threads`` it is 1, since the other workers run at the same time.

A primitive may run on any thread, but not twice at the same time with the same memory objects: executions are
cached per thread (``cache.py``).

GNU OpenMP's workers do not survive a fork and a parallel region in the child would wait for them forever, so
a child gets one thread, and executions prepared before the fork raise an error there (``primitives.py``).
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tenon.extend import Availability, Config, errors
from tenon_cpu.onednn.library import Library, Outcome, find
from tenon_cpu.onednn.signal_stacks import cover_team, cover_thread
from tenon_cpu.onednn.signatures import CPU, STREAM_IN_ORDER
from tenon_cpu.threads import loaded_libraries, on_change, pool

ALIGNMENT = 64


class Runtime:
    """A library with its engine; there is one per process, from ``runtime()``."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.call = library.call
        engine = ctypes.c_void_p()
        library.call("dnnl_engine_create", ctypes.byref(engine), CPU, 0)
        self.engine = engine
        self.threads = 1 if library.runtime == "sequential" else pool().size
        self.openmp = _openmp() if library.runtime == "OpenMP" else None
        if self.openmp is None and library.runtime == "OpenMP":
            self.threads = 0
        self.local = _Local(self)

    def set_threads(self) -> int:
        """Set the number of OpenMP threads of the calling thread and return it."""
        count = 1 if threading.current_thread().name == "tenon-cpu" else self.threads
        if self.openmp is not None:
            self.openmp.omp_set_num_threads(count)
        return count


class _Local(threading.local):
    """Per-thread state, created at first use: stream, scratch memory, a stack for signals."""

    def __init__(self, owner: Runtime) -> None:
        self.threads = owner.set_threads()
        cover_thread()
        cover_team(owner.openmp, self.threads)
        self.stream = Stream(owner)
        self.scratch = Buffer(0)

    def scratch_of(self, size: int) -> Buffer:
        """Return at least ``size`` bytes, shared by this thread's executions, which never run at the same
        time."""
        if self.scratch.size < size:
            self.scratch = Buffer(max(size, 2 * self.scratch.size))
        return self.scratch


class Stream:
    """A stream of the engine; destroyed when its thread has ended and no execution refers to it."""

    __slots__ = ("_destroy", "handle")

    def __init__(self, owner: Runtime) -> None:
        self.handle = ctypes.c_void_p()
        owner.call("dnnl_stream_create", ctypes.byref(self.handle), owner.engine, STREAM_IN_ORDER)
        self._destroy = owner.library.quick["dnnl_stream_destroy"]

    def __del__(self) -> None:
        self._destroy(self.handle)


class Buffer:
    """``size`` bytes of uninitialised memory from ``address``, a multiple of 64; ``array`` owns them."""

    __slots__ = ("address", "array", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.array = np.empty(size + ALIGNMENT, np.uint8)
        start = self.array.ctypes.data
        self.address = start + -start % ALIGNMENT

    def view(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        """Return the memory as an array, for layouts in C order."""
        offset = self.address - self.array.ctypes.data
        array: np.ndarray = self.array[offset : offset + self.size].view(dtype).reshape(shape)
        return array


def _openmp() -> ctypes.CDLL | None:
    """Return the OpenMP library that this process has loaded, or None if none is found."""
    for name in ("libgomp", "libiomp5", "libomp"):
        for path in loaded_libraries(name):
            library = ctypes.CDLL(path)
            if hasattr(library, "omp_set_num_threads"):
                library.omp_set_num_threads.argtypes = (ctypes.c_int,)
                library.omp_set_num_threads.restype = None
                library.omp_get_max_threads.argtypes, library.omp_get_max_threads.restype = (), ctypes.c_int
                return library
    return None


_lock = threading.Lock()
_outcome: Outcome | None = None
_runtime: Runtime | None = None


def outcome() -> Outcome:
    """Return the outcome of the search for the library, which runs once, with the environment's settings."""
    global _outcome
    if _outcome is None:
        with _lock:
            if _outcome is None:
                _outcome = find(Config.from_environment())
                if _outcome.library is None and _outcome.named:
                    warnings.warn(_outcome.reason, errors.TenonWarning, stacklevel=2)
    return _outcome


def available() -> Availability:
    """Return whether oneDNN is in use, with a text: which library, or why not."""
    result = outcome()
    return Availability(result.library is not None, result.reason)


def runtime() -> Runtime:
    """Return the process's runtime; raise BackendError with the reason if there is no library."""
    global _runtime
    if _runtime is None:
        result = outcome()
        if result.library is None:
            raise errors.BackendError(f"oneDNN is not available: {result.reason}.")
        with _lock:
            if _runtime is None:
                _runtime = Runtime(result.library)
    return _runtime


#: The bit of oneDNN's instruction sets for AVX-512 BF16, which AMX includes.
_BFLOAT16 = 0x80


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether oneDNN is in use and the processor multiplies bfloat16; else it emulates, or has no kernel."""
    return bool(available()) and bool(runtime().library.functions["dnnl_get_effective_cpu_isa"]() & _BFLOAT16)


@on_change
def _use_threads(count: int) -> None:
    """Set the number of threads of every thread's runtime; executions prepared later use ``count``."""
    if _runtime is not None and _runtime.openmp is not None:
        _runtime.threads = count
        _runtime.local = _Local(_runtime)


_fork_hooks: list[Callable[[], None]] = []


def on_fork(hook: Callable[[], None]) -> Callable[[], None]:
    """Register ``hook``, called in a forked child if oneDNN is in use, after the runtime is reset to one
    thread."""
    _fork_hooks.append(hook)
    return hook


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    if _runtime is not None:
        if _runtime.library.runtime != "sequential":
            _runtime.threads = 1
        _runtime.local = _Local(_runtime)
        for hook in _fork_hooks:
            hook()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
