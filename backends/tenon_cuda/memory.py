"""What tensors use of a device's memory: CuPy's pool, watched for its highest use.

The pool knows what is in use now but not what was at most, so allocations go through ``Watch.allocate``: one
call and one comparison each. Memory that the pool holds without need stays reserved until ``release``.
"""

from __future__ import annotations

from typing import Any

from tenon.extend import MemoryStats


class Watch:
    """The process's allocator on top of CuPy's default pool."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._pool = library.get_default_memory_pool()
        self._peaks: dict[int, int] = {}

    def install(self) -> None:
        """Become CuPy's allocator, unless somebody has put in one of their own."""
        if self._library.cuda.get_allocator() == self._pool.malloc:
            self._library.cuda.set_allocator(self.allocate)

    def allocate(self, size: int) -> Any:
        """Memory from the pool of the current device."""
        memory = self._pool.malloc(size)
        used = self._pool.used_bytes()
        device = memory.device_id
        if used > self._peaks.get(device, 0):
            self._peaks[device] = used
        return memory

    def stats(self, device: int) -> MemoryStats:
        """Of the current device, which is number ``device``."""
        used = self._pool.used_bytes()
        _, total = self._library.cuda.Device(device).mem_info
        return MemoryStats(used, max(used, self._peaks.get(device, 0)), total)

    def reserved(self) -> int:
        """Bytes that the pool holds on the current device, in use or not."""
        return int(self._pool.total_bytes())

    def release(self) -> None:
        """Give back what the pool holds without need on the current device."""
        self._pool.free_all_blocks()

    def reset(self, device: int) -> None:
        """Begin to watch anew: the peak is what is in use now."""
        self._peaks[device] = self._pool.used_bytes()
