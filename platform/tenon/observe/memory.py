"""Arrays that ops made, from their birth to their end: the owner is the op that made them. And the memory of
compiled programs, which is laid out once and theirs as long as they live.

Only memory that an op's result owns is counted: not views, nor arrays that came from outside. An array's end
is its own, found by a weak reference: the block, which its records hold and then who took them. With its last
holder gone, an end is not told.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from numpy import ndarray

from tenon.engine.op import Primitive
from tenon.engine.value import Value
from tenon.observe.lanes import Lane
from tenon.observe.records import MEMORY


class Blocks:
    """Blocks of memory that were taken while the tap was open."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        #: By class of arrays, the backends that have devices with memory of their own.
        self.devices: dict[type, Any] = {}
        #: Ops seen so far whose one result on the host, if it is not a view, is memory of its own.
        self.owners: set[Any] = set()
        self._lanes = lanes
        #: Of programs, the block, and what will tell its end.
        self._arenas: WeakKeyDictionary[Any, tuple[Any, weakref.finalize[Any, Any]]] = WeakKeyDictionary()

    def made(self, out: Any, op: Any, args: Any, lane: Lane, when: int) -> Any:
        """At its end, ``when``, ``op`` gave ``out``, an array or several arrays or tensors, for ``args``.

        What is returned goes into the op's record: a block, or None if there is none or if it has a record of
        its own.
        """
        if out.__class__ is ndarray and out.base is None:
            if isinstance(op, Primitive) and not op.view:
                self.owners.add(op)
            return self._begin(out, op, args, lane)
        self._part(out, op, args, lane, when)
        return None

    def _part(self, out: Any, op: Any, args: Any, lane: Lane, when: int) -> None:
        """The same for what the op's record cannot tell: one of several, a view's base, on a device."""
        kind, device = out.__class__, -1
        if isinstance(out, tuple):
            for each in out:
                self._part(each.raw if isinstance(each, Value) else each, op, args, lane, when)
        if kind is not ndarray:
            if kind not in self.devices:
                return
            device = self.devices[kind].device_of(out).index or 0
        while out.base is not None:
            if out.base.__class__ is not kind:
                return
            out = out.base
        block = self._begin(out, op, args, lane)
        if block is not None:
            lane.extend((MEMORY, when, out.nbytes, block, op, lane.module, lane.phase, device))

    def _begin(self, out: Any, op: Any, args: Any, lane: Lane) -> Any:
        """The block of ``out``; None if that was there before."""
        for block in weakref.getweakrefs(out):
            told = block.__callback__
            if told is lane.freed or any(told is other.freed for other in self._lanes):
                return None
        if not fresh(out, args):
            return None
        if op not in self.owners and any(_base(given) is out for given in args):
            return None
        return weakref.ref(out, lane.freed)

    def laid_out(self, program: Any, lane: Lane) -> None:
        """``program`` has its arena: all that its values will ever take, the caller's arrays left out."""
        if program in self._arenas:  # it is bound anew
            block, ending = self._arenas.pop(program)
            ending.detach()
            lane.freed(block)
        size = program.plan.peak_bytes
        if size:
            block = object()
            ending = weakref.finalize(program, lane.freed, block)
            ending.atexit = False
            self._arenas[program] = block, ending
            lane.extend((MEMORY, time.perf_counter_ns(), size, block, program.name, "", "forward", -1))

    def close(self) -> None:
        """Hear of no program's end any more; of an array's, nobody does who drops its block."""
        for _, ending in self._arenas.values():
            ending.detach()


def fresh(out: Any, args: Any) -> bool:
    """Whether the array ``out`` is none of ``args``: a kernel that works in place gives what it was given."""
    for given in args:  # noqa: SIM110 - all() takes 0.3 us more
        if given is out:
            return False
    return True


def _base(given: Any) -> Any:
    array = given.raw if isinstance(given, Value) else given
    while getattr(array, "base", None) is not None:
        array = array.base
    return array
