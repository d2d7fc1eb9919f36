"""Memory statistics of a device: CuPy's pool, and the peak of its use.

The pool does not record its peak, so allocations go through ``Watch.allocate``: one call and one comparison
each. Memory that the pool caches stays reserved until ``release``.
"""

from __future__ import annotations

from tenon.extend import MemoryStats
from tenon_cuda.library import Cupy, CupyObject


class Watch:
    """An allocator on top of CuPy's default pool that records the peak of each device."""

    def __init__(self, library: Cupy) -> None:
        self._library = library
        self._pool = library.get_default_memory_pool()
        self._peaks: dict[int, int] = {}

    def install(self) -> None:
        """Become CuPy's allocator, unless the program has installed another one."""
        if self._library.cuda.get_allocator() == self._pool.malloc:
            self._library.cuda.set_allocator(self.allocate)

    def allocate(self, size: int) -> CupyObject:
        """Allocate ``size`` bytes from the pool of the current device."""
        memory = self._pool.malloc(size)
        used = self._pool.used_bytes()
        device = memory.device_id
        if used > self._peaks.get(device, 0):
            self._peaks[device] = used
        return memory

    def stats(self, device: int) -> MemoryStats:
        """Statistics of the current device, whose index is ``device``."""
        used = self._pool.used_bytes()
        _, total = self._library.cuda.Device(device).mem_info
        return MemoryStats(used, max(used, self._peaks.get(device, 0)), total)

    def reserved(self) -> int:
        """Bytes that the pool holds on the current device, in use or cached."""
        return int(self._pool.total_bytes())

    def release(self) -> None:
        """Return the cached memory of the current device to the driver."""
        self._pool.free_all_blocks()

    def reset(self, device: int) -> None:
        """Set the peak to the bytes in use."""
        self._peaks[device] = self._pool.used_bytes()
