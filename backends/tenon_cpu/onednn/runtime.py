"""The process's one oneDNN: its engine, each thread's stream and scratch memory, and how many threads work.

oneDNN has OpenMP threads of its own. Their number is that of ``tenon_cpu.threads``, so ``OMP_NUM_THREADS``
and ``OPENBLAS_NUM_THREADS`` rule all. OpenMP keeps the number per calling thread; a worker of
``tenon_cpu.threads`` gets one, since its fellows work beside it.

A primitive may run on any thread, but not twice at the same time with the same memory objects: whoever keeps
executions keeps them per thread (``cache.py``).

GNU OpenMP's workers do not survive a fork and a parallel region in the child would wait for them for ever, so
a child gets one thread, and what was prepared before the fork refuses to run there (``primitives.py``).
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
        """Give the calling thread its number of OpenMP threads; what it is."""
        count = 1 if threading.current_thread().name == "tenon-cpu" else self.threads
        if self.openmp is not None:
            self.openmp.omp_set_num_threads(count)
        return count


class _Local(threading.local):
    """What each thread has: its stream, its scratch memory, a stack for signals. Made at its first use."""

    def __init__(self, owner: Runtime) -> None:
        self.threads = owner.set_threads()
        cover_thread()
        cover_team(owner.openmp, self.threads)
        self.stream = Stream(owner)
        self.scratch = Buffer(0)

    def scratch_of(self, size: int) -> Buffer:
        """At least ``size`` bytes that all executions of this thread share; they never run at once."""
        if self.scratch.size < size:
            self.scratch = Buffer(max(size, 2 * self.scratch.size))
        return self.scratch


class Stream:
    """A queue of the engine; freed when its thread has ended and no execution refers to it."""

    __slots__ = ("_destroy", "handle")

    def __init__(self, owner: Runtime) -> None:
        self.handle = ctypes.c_void_p()
        owner.call("dnnl_stream_create", ctypes.byref(self.handle), owner.engine, STREAM_IN_ORDER)
        self._destroy = owner.library.quick["dnnl_stream_destroy"]

    def __del__(self) -> None:
        self._destroy(self.handle)


class Buffer:
    """``size`` bytes of uninitialised memory at a multiple of 64: ``address``, and ``array`` that holds
    it."""

    __slots__ = ("address", "array", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.array = np.empty(size + ALIGNMENT, np.uint8)
        start = self.array.ctypes.data
        self.address = start + -start % ALIGNMENT

    def view(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        """The memory as an array, for layouts that are plain rows."""
        offset = self.address - self.array.ctypes.data
        array: np.ndarray = self.array[offset : offset + self.size].view(dtype).reshape(shape)
        return array


def _openmp() -> ctypes.CDLL | None:
    """The OpenMP library that this process has loaded, or None where it cannot be told."""
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
    """What the search for the library gave; searched once, with the settings of the environment."""
    global _outcome
    if _outcome is None:
        with _lock:
            if _outcome is None:
                _outcome = find(Config.from_environment())
                if _outcome.library is None and _outcome.named:
                    warnings.warn(_outcome.reason, errors.TenonWarning, stacklevel=2)
    return _outcome


def available() -> Availability:
    """Whether oneDNN is in use here, and which one or why not."""
    result = outcome()
    return Availability(result.library is not None, result.reason)


def runtime() -> Runtime:
    """The process's runtime; BackendError with the reason where there is no library."""
    global _runtime
    if _runtime is None:
        result = outcome()
        if result.library is None:
            raise errors.BackendError(f"oneDNN is not available: {result.reason}.")
        with _lock:
            if _runtime is None:
                _runtime = Runtime(result.library)
    return _runtime


#: Of oneDNN's instruction sets: that AVX-512 BF16, or AMX, is one.
_BFLOAT16 = 0x80


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether oneDNN is in use and the processor multiplies bfloat16; else it emulates, or has no kernel."""
    return bool(available()) and bool(runtime().library.functions["dnnl_get_effective_cpu_isa"]() & _BFLOAT16)


@on_change
def _use_threads(count: int) -> None:
    """From now on, on every thread; what is prepared later is prepared for ``count``."""
    if _runtime is not None and _runtime.openmp is not None:
        _runtime.threads = count
        _runtime.local = _Local(_runtime)


_fork_hooks: list[Callable[[], None]] = []


def on_fork(hook: Callable[[], None]) -> Callable[[], None]:
    """Have ``hook`` called in a forked child, where oneDNN is in use, after the runtime has one thread."""
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
