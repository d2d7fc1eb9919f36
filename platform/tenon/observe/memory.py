"""Arrays that ops made, from their birth to their end: the owner is the op that made them. And the memory of
compiled programs, which is laid out once and theirs as long as they live.

Only memory that an op's result owns is counted: not views, nor arrays that came from outside. An array's end
is its own, found by a weak reference, which costs about 0.6 us.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable
from typing import Any
from weakref import getweakrefcount as references

from numpy import ndarray

from tenon.core.op import Primitive
from tenon.core.value import Value
from tenon.observe.records import MEMORY, RELEASED


class _Block(weakref.ref[Any]):
    """An array or a program that lives, by its number; hashed by itself, not by what it refers to."""

    __slots__ = ("number",)
    number: int
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Blocks:
    """The living arrays that were made while the tap was open."""

    def __init__(self, local: Any, find: Callable[[], Any]) -> None:
        self._living: set[_Block] = set()
        #: By class of arrays, the backends that have devices with memory of their own.
        self.devices: dict[type, Any] = {}
        self._count = itertools.count(1).__next__
        self._freed = self._freeing(local, find)
        #: ``made(out, op, args, lane, when)``: at its end, ``when``, ``op`` gave ``out``, an array or several
        #: arrays or tensors, for ``args``, arrays or tensors. What it returns goes into the op's record.
        self.made = self._making()

    def _freeing(self, local: Any, find: Callable[[], Any]) -> Callable[[Any], None]:
        """What is called at an end, as a closure, 0.2 us less than a method; ``find()`` makes this thread's
        ``local.lane``."""
        discard, now = self._living.discard, time.perf_counter_ns

        def freed(block: Any) -> None:
            discard(block)
            try:
                lane = local.lane
            except AttributeError:
                lane = find()
            lane.extend((RELEASED, now(), block.number))

        return freed

    def _making(self) -> Callable[..., int]:
        live, count, freed, devices = self._living.add, self._count, self._freed, self.devices

        def made(out: Any, op: Any, args: Any, lane: Any, when: int) -> int:
            if out.__class__ is not ndarray or out.base is not None:
                part(out, op, args, lane, when)
                return 0
            if references(out) and self._known(out):
                return 0
            for given in args:
                if given is out:  # a kernel that works in place
                    return 0
            if (op.view or not isinstance(op, Primitive)) and any(_base(a) is out for a in args):
                return 0
            block = _Block(out, freed)
            block.number = number = count()
            live(block)
            return number

        def part(out: Any, op: Any, args: Any, lane: Any, when: int) -> None:
            """The same for what the op's record cannot tell: one of several, a view's base, on a device."""
            kind, device = out.__class__, -1
            if kind is tuple:
                for each in out:
                    part(each.raw if isinstance(each, Value) else each, op, args, lane, when)
            if kind is not ndarray:
                if kind not in devices:
                    return
                device = devices[kind].device_of(out).index or 0
            while out.base is not None:
                if out.base.__class__ is not kind:
                    return
                out = out.base
            if self._known(out) or any(given is out for given in args):
                return
            if (op.view or not isinstance(op, Primitive)) and any(_base(a) is out for a in args):
                return
            lane.extend((MEMORY, when, out.nbytes, self._begin(out), op, lane.module, lane.phase, device))

        return made

    def _known(self, out: Any) -> bool:
        return any(isinstance(each, _Block) and each in self._living for each in weakref.getweakrefs(out))

    def _begin(self, what: Any) -> int:
        block = _Block(what, self._freed)
        block.number = self._count()
        self._living.add(block)
        return block.number

    def laid_out(self, program: Any, lane: Any) -> None:
        """``program`` has its arena: all that its values will ever take, the caller's arrays left out."""
        for each in weakref.getweakrefs(program):
            if isinstance(each, _Block) and each in self._living:  # it is bound anew
                self._freed(each)
        size = program.plan.peak_bytes
        if size:
            now = time.perf_counter_ns()
            lane.extend((MEMORY, now, size, self._begin(program), program.name, "", "forward", -1))

    def close(self) -> None:
        """Hear of no end any more."""
        self._living.clear()


def _base(given: Any) -> Any:
    array = given.raw if isinstance(given, Value) else given
    while getattr(array, "base", None) is not None:
        array = array.base
    return array
