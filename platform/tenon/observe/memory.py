"""Arrays that ops made, from their birth to their end: the owner is the op that made them.

Only memory that an op's result owns is counted: not views, nor arrays that came from outside. An array's end
is its own, found by a weak reference; a callback costs about 0.5 us.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

import numpy as np

from tenon.core.value import Value
from tenon.observe.records import MEMORY


class _Block(weakref.ref[Any]):
    """An array that lives."""

    __slots__ = ("key",)
    key: int


class Blocks:
    """The living arrays that were made while the tap was open."""

    def __init__(self, tap: Any) -> None:
        self._tap = tap
        #: By id of the array: the reference, and the end of its record.
        self._living: dict[int, tuple[Any, ...]] = {}
        self._count = 0

    def made(self, out: Any, op: Any, args: Any, lane: Any, when: int) -> None:
        """At its end, ``when``, ``op`` gave ``out``, an array or several, for ``args``, arrays or tensors."""
        if out.__class__ is not np.ndarray:
            if out.__class__ is tuple:
                for each in out:
                    self.made(each, op, args, lane, when)
            return
        while out.base is not None:
            if out.base.__class__ is not np.ndarray:
                return
            out = out.base
        key = id(out)
        if key in self._living:
            return
        for given in args:
            array = given.raw if isinstance(given, Value) else given
            while array is not None and array is not out:
                array = getattr(array, "base", None)
            if array is out:
                return
        block = _Block(out, self._freed)
        block.key = key
        self._count += 1
        size, count, module, phase = out.nbytes, self._count, lane.module, lane.phase
        self._living[key] = (block, size, count, op, module, phase)
        lane.extend((MEMORY, when, size, count, op, module, phase))

    def _freed(self, block: Any) -> None:
        found = self._living.pop(block.key, None)
        if found is not None:
            _, size, count, op, module, phase = found
            self._tap.lane().extend((MEMORY, time.perf_counter_ns(), -size, count, op, module, phase))

    def close(self) -> None:
        """Hear of no end any more."""
        self._living.clear()
