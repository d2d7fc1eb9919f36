"""Arrays that ops made, from their birth to their end: the owner is the op that made them.

Only memory that an op's result owns is counted: not views, nor arrays that came from outside. An array's end
is its own, found by a weak reference; a callback costs about 0.5 us.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

import numpy as np

from tenon.observe.records import MEMORY


class _Block(weakref.ref[Any]):
    """An array that lives, and who made it."""

    __slots__ = ("address", "key", "module", "op", "phase", "size")

    op: Any
    module: str
    phase: str
    address: int
    key: int
    size: int


class Blocks:
    """The living arrays that were made while the tap was open."""

    def __init__(self, tap: Any) -> None:
        self._tap = tap
        self._living: dict[int, _Block] = {}
        self._count = 0

    def made(self, out: Any, op: Any, given: Any, lane: Any, when: int) -> None:
        """At its end, ``when``, ``op`` gave ``out``, an array or several, for the arrays ``given``."""
        if out.__class__ is tuple:
            for each in out:
                self.made(each, op, given, lane, when)
            return
        if out.__class__ is not np.ndarray:
            return
        owner = _owner(out)
        key = id(owner)
        if key in self._living or not owner.flags.owndata or any(_owner(g) is owner for g in given):
            return
        block = _Block(owner, self._freed)
        self._count += 1
        block.op, block.module, block.phase = op, lane.module, lane.phase
        block.key, block.address, block.size = key, self._count, owner.nbytes
        self._living[key] = block
        lane.append((MEMORY, when, block.size, block.address, op, lane.module, lane.phase))

    def _freed(self, block: Any) -> None:
        self._living.pop(block.key, None)
        lane = self._tap.lane()
        now = time.perf_counter_ns()
        lane.append((MEMORY, now, -block.size, block.address, block.op, block.module, block.phase))

    def close(self) -> None:
        """Hear of no end any more."""
        self._living.clear()


def _owner(array: Any) -> Any:
    while array.base.__class__ is np.ndarray:
        array = array.base
    return array
