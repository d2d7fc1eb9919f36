"""Enough of ``cupy`` and ``cupy.cuda`` to run the CUDA backend's own logic on strict arrays: several devices, a pool
with a limit, events on a clock that only counts.
"""

from types import SimpleNamespace

import strict_arrays
from strict_arrays import Array, Place

from tenon.extend import Availability
from tenon_cuda.backend import CudaBackend


class OutOfMemory(MemoryError):
    """As ``cupy.cuda.memory.OutOfMemoryError``."""


class RuntimeFailure(RuntimeError):
    """As ``cupy.cuda.runtime.CUDARuntimeError``."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Device:
    """A device as a context that makes it current."""

    def __init__(self, index):
        self.id = index
        self.mem_info = (600, 1000)

    def use(self):
        Place.current = self.id

    def synchronize(self):
        return None

    def __enter__(self):
        self.before = Place.current
        Place.current = self.id

    def __exit__(self, *exc):
        Place.current = self.before


class Pool:
    """A memory pool that counts."""

    def __init__(self):
        self.used = 0
        self.held = 0

    def malloc(self, size):
        self.used += size
        self.held = max(self.held, self.used)
        return SimpleNamespace(device_id=Place.current)

    def used_bytes(self):
        return self.used

    def total_bytes(self):
        return self.held

    def free_all_blocks(self):
        self.held = self.used


class Event:
    """A point on a clock that goes on by one millisecond per event."""

    ticks = 0

    def record(self):
        Event.ticks += 1
        self.at = Event.ticks

    def synchronize(self):
        return None


class Library:
    """``cupy``."""

    def __init__(self, devices):
        self._pool = Pool()
        self._allocator = self._pool.malloc
        self.exhausted = False
        self.cuda = SimpleNamespace(
            Device=Device,
            Event=Event,
            get_elapsed_time=lambda a, b: float(b.at - a.at),
            get_allocator=lambda: self._allocator,
            set_allocator=self._set,
            runtime=SimpleNamespace(
                getDevice=lambda: Place.current,
                getDeviceCount=lambda: devices,
                getDeviceProperties=lambda i: {"name": b"Stub 9000", "major": 9, "minor": 0, "index": i},
            ),
        )

    def _set(self, allocator):
        self._allocator = allocator

    def allocate(self, size):
        return self._allocator(size)

    def get_default_memory_pool(self):
        return self._pool

    def asnumpy(self, array):
        return array.get()

    def empty(self, shape, dtype):
        if self.exhausted:
            raise OutOfMemory("Out of memory allocating 4,096 bytes (allocated so far: 512 bytes).")
        return strict_arrays.xp.empty(shape, dtype)

    def __getattr__(self, name):
        return getattr(strict_arrays.xp, name)


class StubSource:
    """What finds CuPy: here, always."""

    def __init__(self, devices):
        self._library = Library(devices)

    def examine(self):
        return Availability(True, "a stub")

    def imported(self):
        return self._library

    def linalg_errors(self):
        import contextlib

        return contextlib.nullcontext()


def stub_backend(devices=1):
    """A ``CudaBackend`` over strict arrays."""
    backend = CudaBackend()
    backend.source = StubSource(devices)
    return backend


__all__ = ["Array", "Library", "RuntimeFailure", "stub_backend"]
