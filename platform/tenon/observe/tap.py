"""``Tap``: opens every place where work can be seen, and turns what passes there into records.

Ops enter by the interceptor slot; the arrays' ops inside gradient rules and optimizers by the backends' raw
namespaces; gradient nodes, programs, collectives and waits by ``core/watch.py``; module calls by scopes. What
runs is what would run without a tap: ``only_casts`` keeps backward passes and optimizers on bare arrays, and
compiled functions compiled.

This file is hot while a profile is open: one op costs ten items of a list, see ``tests/bench/profiler.py``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenon.core import scopes, watch
from tenon.core.backend import backends_in_use
from tenon.core.interceptor import SLOT
from tenon.core.op import Composite, table
from tenon.core.value import Value
from tenon.errors import UnsupportedError
from tenon.graph import program
from tenon.observe.crossings import Crossings
from tenon.observe.devices import marked_kernel, marked_op
from tenon.observe.lanes import Lane
from tenon.observe.memory import Blocks
from tenon.observe.records import NODE, OP
from tenon.observe.scopes import OPEN
from tenon.observe.stack import stack_here
from tenon.optim import step_hooks

now = time.perf_counter_ns
#: Backends whose ops are over when they return.
_HOST = frozenset(("cpu", "meta"))
#: How often the owner may be called, in nanoseconds: it flushes, so that memory is bounded.
PATIENCE = 250_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """What a tap notes of each event."""

    shapes: bool = False
    memory: bool = False
    stack: bool = False
    modules: bool = False


class Tap:
    """Records of everything between ``open`` and ``close``; ``due`` is called with the tap now and then.

    There is one open tap in a process. Records are in ``lanes``, one for each thread.
    """

    #: Backward passes, optimizers and compiled functions work as if it were not in the slot.
    only_casts = True

    def __init__(self, options: Options, due: Callable[[Tap], None]) -> None:
        self.options = options
        self.lanes: list[Lane] = []
        self._due = due
        self._local = threading.local()
        self._crossings = Crossings(self)
        self._blocks = Blocks(self) if options.memory else None
        self._handles: list[Any] = []
        self._labels: dict[Any, str] = {}
        #: Every signature once: see ``records.py`` for what objects that stay cost.
        self._signatures: dict[Any, Any] = {}
        self._mine: Any = None
        self.run: Callable[..., Any] = self._op()

    def open(self) -> None:
        """Begin; UnsupportedError if another profile is open."""
        if OPEN.tap is not None:
            raise UnsupportedError(
                "Profiler is already enabled in this process. Leave the other profile first."
            )
        for lane in self.lanes:
            lane.begin()
        OPEN.tap = self
        devices = {backend for backend in backends_in_use() if backend.name not in _HOST}
        self.run = marked_op(self, self._op(), devices) if devices else self._op()
        for backend in backends_in_use():
            around = marked_kernel(self, backend) if backend in devices else self.kernel
            for raw in (backend.raw, backend.short_raw):
                raw.watch(around)
        SLOT.push(self)
        self._mine = SLOT._stack
        scopes.listen(self._crossings)
        watch.visiting, watch.span = self._visiting, self._crossings.span
        watch.collective, watch.bound = self._crossings.collective, self._bound
        for each in list(program.LIVING):
            self._bound(each)
        self._handles = [
            step_hooks.register_optimizer_step_pre_hook(self._crossings.stepping),
            step_hooks.register_optimizer_step_post_hook(self._crossings.stepped),
        ]

    def close(self) -> None:
        """End; nothing is paid any more."""
        if not self.is_open:
            return
        OPEN.tap = None
        SLOT.pop(self)
        scopes.unlisten(self._crossings)
        for backend in backends_in_use():
            for raw in (backend.raw, backend.short_raw):
                raw.watch(None)
        watch.visiting = watch.span = watch.collective = watch.bound = None
        for each in list(program.LIVING):
            each.timed(None)
        for handle in self._handles:
            handle.remove()
        if self._blocks is not None:
            self._blocks.close()

    @property
    def is_open(self) -> bool:
        """Whether it records."""
        return OPEN.tap is self

    def lane(self) -> Lane:
        """This thread's."""
        try:
            found: Lane = self._local.lane
        except AttributeError:
            found = self._local.lane = Lane(now() + PATIENCE)
            self.lanes.append(found)
        return found

    def take(self) -> list[tuple[int, list[Any]]]:
        """Thread and records of every lane, which are then gone from here."""
        return [(lane.tid, lane.take()) for lane in self.lanes]

    def overdue(self, lane: Lane) -> None:
        """Give the owner its turn."""
        self._due(self)
        lane.due = now() + PATIENCE

    def _op(self) -> Callable[..., Any]:
        """``run`` of the interceptor, as a closure: 0.3 us less an op than with attributes of ``self``."""
        local, find = self._local, self.lane
        options, overdue, tap = self.options, self.overdue, self
        shapes, stacks = options.shapes, options.stack
        blocks = self._blocks
        single, pair, execute = SLOT.single, SLOT.pair, SLOT.execute
        parted: dict[Any, bool] = {}
        known = self._signatures

        def run(op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
            try:
                lane = local.lane
            except AttributeError:
                lane = find()
            parts = parted.get(op)
            if parts is None:
                parts = parted[op] = isinstance(op, Composite) and not op.differentiable
            if SLOT._stack is not tap._mine:
                below = SLOT.below(tap)
                begin = now()
                out = below(op, args, attrs)
            elif parts:
                begin = now()
                out = op.decompose(table, *args, **attrs)
            elif len(args) == 1:
                begin = now()
                out = single(op, args[0], attrs)
            elif attrs or len(args) != 2:
                begin = now()
                out = execute(op, args, attrs)
            else:
                begin = now()
                out = pair(op, args[0], args[1])
            end = now()
            made = out.raw if isinstance(out, Value) else None
            signature = None
            if shapes:
                signature = tuple(
                    [(a.raw.shape, a.raw.dtype) if isinstance(a, Value) else a.__class__ for a in args]
                )
                signature = known.setdefault(signature, signature)
            size = 0 if made is None else made.nbytes
            stack = stack_here() if stacks else None
            lane.extend((OP, op, begin, end, lane.module, lane.phase, signature, size, attrs or None, stack))
            if blocks is not None:
                outs = made if made is not None else tuple([o.raw for o in out if isinstance(o, Value)])
                blocks.made(outs, op, args, lane, end)
            if end > lane.due:
                overdue(lane)
            return out

        return run

    def kernel(self, op: Any, kernel: Any) -> Any:
        """``kernel``, on arrays, with a record of each call."""
        find, overdue, blocks = self.lane, self.overdue, self._blocks
        local, known = self._local, self._signatures
        shapes, stacks = self.options.shapes, self.options.stack

        def call(*args: Any, **attrs: Any) -> Any:
            try:
                lane = local.lane
            except AttributeError:
                lane = find()
            begin = now()
            out = kernel(*args, **attrs)
            end = now()
            signature = None
            if shapes:
                signature = tuple([(a.shape, a.dtype) if hasattr(a, "shape") else a.__class__ for a in args])
                signature = known.setdefault(signature, signature)
            size = getattr(out, "nbytes", 0)
            stack = stack_here() if stacks else None
            lane.extend((OP, op, begin, end, lane.module, lane.phase, signature, size, attrs or None, stack))
            if blocks is not None:
                blocks.made(out, op, args, lane, end)
            if end > lane.due:
                overdue(lane)
            return out

        return call

    def _visiting(self, visit: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        lane = self.lane()

        def watched(node: Any, grad: Any) -> None:
            before = lane.module
            lane.module = label = self._label(node.module)
            name = node.name()
            begin = now()
            try:
                visit(node, grad)
            finally:
                lane.module = before
                lane.extend((NODE, name, begin, now(), label, node.seq))

        return watched

    def _label(self, place: Any) -> str:
        """The path of the module where a node was made, under its root's class name."""
        if place is None:
            return ""
        key = (place[0], place[1])
        found = self._labels.get(key)
        if found is None:
            root, path = place[0](), scopes.path_of(place)
            top = type(root).__name__
            found = self._labels[key] = path if root is None or path == top else f"{top}.{path}"
        return found

    def _bound(self, bound: Any) -> None:
        bound.timed(self._crossings.marker(bound))


def _leave_to_the_parent() -> None:
    """A process that was forked has the tap, and the file that it writes, of its parent."""
    if OPEN.tap is not None:
        OPEN.tap.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
