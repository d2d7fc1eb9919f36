"""Allocation and release of arrays, each owned by the op that allocated it, and of compiled programs' arenas.

Only memory that an op's result owns is counted: neither views nor arrays from outside. The release of an
array is detected by a weak reference to it, the block. The records refer to the block, and so does the code
that has taken them: without a reference to the block, its release is not reported. An arena is freed with its
program.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from numpy import ndarray

from tenon.engine.op import Op, Primitive
from tenon.engine.types import Array, Operand
from tenon.engine.value import Value
from tenon.graph.program import Program
from tenon.kernels.backend import Backend
from tenon.profiler.observe.lanes import Lane
from tenon.profiler.observe.records import MEMORY


class Blocks:
    """Tracks the blocks of memory allocated while the tap is open."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        #: By class of arrays, the backends that have devices with memory of their own.
        self.devices: dict[type, Backend] = {}
        #: Ops seen so far whose single result on the host, unless it is a view, owns its memory.
        self.owners: set[Op] = set()
        self._lanes = lanes
        #: Per program its block, and the finalizer that records the release.
        self._arenas: WeakKeyDictionary[Program, tuple[object, weakref.finalize[[object], Program]]] = (
            WeakKeyDictionary()
        )

    def allocated(
        self, out: Array | tuple[Operand, ...], op: Op, args: Iterable[Operand], lane: Lane, when: int
    ) -> object:
        """Track ``out``, the array, or several arrays or tensors, that ``op(*args)`` returned at ``when``.

        Returns the block for the op's record; None if nothing was allocated, or if the allocation has a
        record of its own.
        """
        if out.__class__ is ndarray and out.base is None:
            if isinstance(op, Primitive) and not op.view:
                self.owners.add(op)
            return self._begin(out, op, args, lane)
        self._track_result(out, op, args, lane, when)
        return None

    def _track_result(self, out: Array, op: Op, args: Iterable[Operand], lane: Lane, when: int) -> None:
        """Record allocations outside of the op's record: several results, a view's base, device memory."""
        kind, device = out.__class__, -1
        if isinstance(out, tuple):
            for each in out:
                self._track_result(each.raw if isinstance(each, Value) else each, op, args, lane, when)
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

    def _begin(self, out: Array, op: Op, args: Iterable[Operand], lane: Lane) -> weakref.ref[Array] | None:
        """Track ``out``: return its block, or None if ``op`` did not allocate it or it is tracked already."""
        for block in weakref.getweakrefs(out):
            callback = block.__callback__
            if callback is lane.freed or any(callback is other.freed for other in self._lanes):
                return None
        if not fresh(out, args):
            return None
        if op not in self.owners and any(_base(argument) is out for argument in args):
            return None
        return weakref.ref(out, lane.freed)

    def track_arena(self, program: Program, lane: Lane) -> None:
        """Track the arena of ``program``, the memory of all its values except the caller's arrays."""
        if program in self._arenas:  # the program is bound again
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
        """Stop tracking programs; an array is no longer tracked once its block is dropped."""
        for _, ending in self._arenas.values():
            ending.detach()


def fresh(out: Array, args: Iterable[Operand]) -> bool:
    """Whether the array ``out`` is new, not one of ``args``: an in-place kernel returns its argument."""
    for argument in args:  # noqa: SIM110 - all() takes 0.3 us more
        if argument is out:
            return False
    return True


def _base(argument: Operand) -> Array:
    """Return the array that owns the memory of ``argument``, a tensor or an array."""
    array = argument.raw if isinstance(argument, Value) else argument
    while getattr(array, "base", None) is not None:
        array = array.base
    return array
