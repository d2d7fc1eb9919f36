"""Temporary arrays of generated kernels; those of one program share memory, as they run one after another."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

#: Of each array, in elements: a cache line.
_LINE = 8


class _Shared(threading.local):
    """What the kernels share that the calling thread binds; None where each has its own."""

    memory: Any = None


_shared = _Shared()


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Kernels bound inside never run at the same time."""
    before, _shared.memory = _shared.memory, np.empty(0)
    try:
        yield
    finally:
        _shared.memory = before


def arrays(sizes: Sequence[int]) -> list[Any]:
    """Float64 arrays of these sizes, with anything in them."""
    memory = _shared.memory
    if memory is None:
        return [np.empty(max(n, 1)) for n in sizes]
    starts = np.cumsum([0, *(-(-max(n, 1) // _LINE) * _LINE for n in sizes)]).tolist()
    if starts[-1] > memory.size:  # twice as much, so that the ones before are never more than this one
        memory = _shared.memory = np.empty(max(starts[-1], 2 * memory.size))
    return [memory[start : start + max(n, 1)] for start, n in zip(starts, sizes, strict=False)]
