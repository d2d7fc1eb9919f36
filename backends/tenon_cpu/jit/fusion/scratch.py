"""Temporary arrays of generated kernels; those of one program share memory, as its kernels run in order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import numpy as np

#: Elements of a cache line, to a multiple of which each array's memory is rounded up.
_LINE = 8


class _Shared(threading.local):
    """The memory shared by the kernels that the calling thread binds; None if each has its own."""

    memory: np.ndarray | None = None


_shared = _Shared()


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """A context for binding kernels that never run at the same time: their temporary arrays share memory."""
    before, _shared.memory = _shared.memory, np.empty(0)
    try:
        yield
    finally:
        _shared.memory = before


def arrays(sizes: Sequence[int]) -> list[np.ndarray]:
    """Uninitialised float64 arrays of these sizes."""
    memory = _shared.memory
    if memory is None:
        return [np.empty(max(n, 1)) for n in sizes]
    starts = np.cumsum([0, *(-(-max(n, 1) // _LINE) * _LINE for n in sizes)]).tolist()
    if starts[-1] > memory.size:  # doubled, so that all the former ones together are never larger than it
        memory = _shared.memory = np.empty(max(starts[-1], 2 * memory.size))
    return [memory[start : start + max(n, 1)] for start, n in zip(starts, sizes, strict=False)]
