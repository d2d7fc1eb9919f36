"""``Tap``: instruments dispatch, kernels, modules, programs and collectives, and records each call.

Ops are recorded in plain dispatch, below all interceptors such as autocast and graph recording; ops on bare
arrays, inside gradient rules and optimizers, in the backends' raw namespaces; in-place changes, gradient
nodes and waits by ``engine/watchers.py``; programs and collectives by callbacks of their modules; module
calls by scopes. The program runs as it would without a tap: no interceptor is installed, so that backward
passes and optimizers work on bare arrays, and compiled functions stay compiled.

This file is hot while a profile is open: an op costs eleven items of a list, see ``tests/bench/profiler.py``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import getweakrefcount as references
from weakref import ref

from numpy import ndarray

from tenon.device import get_default_device
from tenon.distributed.communication import communicator
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Op
from tenon.engine.scopes import Place, path_of
from tenon.engine.tape import Node
from tenon.engine.types import Array, Attrs, Operand
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import UnsupportedError
from tenon.graph import program
from tenon.graph.program import Program
from tenon.kernels.backend import backend_for, backends_in_use
from tenon.nn import call_listeners
from tenon.optim import step_hooks
from tenon.profiler.observe.devices import marked_kernel, marked_op
from tenon.profiler.observe.event_callbacks import EventCallbacks
from tenon.profiler.observe.lanes import Lane
from tenon.profiler.observe.memory import Blocks, fresh
from tenon.profiler.observe.records import NODE, OP, Item, factory
from tenon.profiler.observe.scopes import OPEN
from tenon.profiler.observe.stack import Frame, stack_here
from tenon.tensors.autograd.handles import RemovableHandle

now = time.perf_counter_ns
#: Backends whose ops have completed when they return.
_HOST = frozenset(("cpu", "meta"))
#: The interval in nanoseconds between calls of the owner, which flushes, so that memory is bounded.
FLUSH_INTERVAL = 50_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """Which details a tap records."""

    shapes: bool = False
    memory: bool = False
    stack: bool = False
    modules: bool = False


class Tap:
    """Records everything between ``open`` and ``close``; ops call ``due`` with the tap every
    ``FLUSH_INTERVAL``.

    At most one tap is open in a process. Records are in ``lanes``, one for each thread.
    """

    def __init__(self, options: Options, due: Callable[[Tap], None]) -> None:
        self.options = options
        self.lanes: list[Lane] = []
        self._due = due
        self._local = threading.local()
        self._callbacks = EventCallbacks(self)
        self._blocks = Blocks(self.lanes) if options.memory else None
        self._handles: list[RemovableHandle] = []
        self._labels: dict[object, str] = {}
        self._note = self._recorder()
        self._plain: tuple[Callable[..., Operand], ...] = ()

    def open(self) -> None:
        """Start recording; UnsupportedError if another tap is open."""
        if OPEN.tap is not None:
            raise UnsupportedError(
                "Profiler is already enabled in this process. Leave the other profile first."
            )
        for lane in self.lanes:
            lane.begin()
        OPEN.tap = self
        self._plain = SLOT.single, SLOT.pair, SLOT.execute, SLOT.parts
        backend_for(get_default_device())  # instantiated, though no tensor may have been created yet
        devices = {b for b in backends_in_use() if b.name not in _HOST and b.is_available().ok}
        if self._blocks is not None:
            self._blocks.devices.update((b.array_type, b) for b in devices)
        for backend in backends_in_use():
            around = marked_kernel(self, backend) if backend in devices else self.kernel
            for raw in (backend.raw, backend.short_raw):
                raw.watch(around)
        SLOT.single, SLOT.pair, SLOT.execute, SLOT.parts = self._recorded_dispatch(*self._plain)
        if devices:
            SLOT.single, SLOT.pair, SLOT.execute = (
                marked_op(self, run, devices) for run in (SLOT.single, SLOT.pair, SLOT.execute)
            )
        call_listeners.listen(self._callbacks)
        WATCHERS.around_visit, WATCHERS.span = self._recorded_visit, self._callbacks.span
        communicator.around_call, program.on_bind = self._callbacks.collective, self._bound
        WATCHERS.around_kernel, WATCHERS.around_creation = self._recorded_kernel, self._recorded_creation
        for each in list(program.LIVING):
            self._bound(each)
        self._handles = [
            step_hooks.register_optimizer_step_pre_hook(self._callbacks.stepping),
            step_hooks.register_optimizer_step_post_hook(self._callbacks.stepped),
        ]

    def close(self) -> None:
        """Stop recording and remove all instrumentation."""
        if not self.is_open:
            return
        OPEN.tap = None
        SLOT.single, SLOT.pair, SLOT.execute, SLOT.parts = self._plain
        call_listeners.unlisten(self._callbacks)
        for backend in backends_in_use():
            for raw in (backend.raw, backend.short_raw):
                raw.watch(None)
        WATCHERS.around_visit = WATCHERS.span = communicator.around_call = program.on_bind = None
        WATCHERS.around_kernel = WATCHERS.around_creation = None
        for each in list(program.LIVING):
            each.timed(None)
        for handle in self._handles:
            handle.remove()
        if self._blocks is not None:
            self._blocks.close()

    @property
    def is_open(self) -> bool:
        """Whether this tap is recording."""
        return OPEN.tap is self

    def lane(self) -> Lane:
        """Return the lane of the current thread."""
        try:
            lane: Lane = self._local.lane
        except AttributeError:
            lane = self._local.lane = Lane(now() + FLUSH_INTERVAL)
            self.lanes.append(lane)
        return lane

    def take(self) -> list[tuple[int, list[Item]]]:
        """Remove and return the records of every lane, with its thread."""
        return [(lane.tid, lane.take()) for lane in self.lanes]

    def overdue(self, lane: Lane) -> None:
        """Call the owner, which may flush, and set when ``lane`` calls it next."""
        self._due(self)
        lane.due = now() + FLUSH_INTERVAL

    def _recorded_dispatch(
        self,
        single: Callable[..., Operand],
        pair: Callable[..., Operand],
        execute: Callable[..., Operand],
        parts: Callable[..., Operand],
    ) -> tuple[Callable[..., Operand], ...]:
        """Wrap the four entries of ``SLOT`` to record each op: closures take 0.3 us less than methods."""
        note = self._note

        def one(op: Op, x: Operand, attrs: Attrs) -> Operand:
            begin = now()
            out = single(op, x, attrs)
            note(begin, now(), op, (x,), attrs, out)
            return out

        def two(op: Op, x: Operand, y: Operand) -> Operand:
            begin = now()
            out = pair(op, x, y)
            note(begin, now(), op, (x, y), None, out)
            return out

        def several(op: Op, args: tuple[Operand, ...], attrs: Attrs, *more: object) -> Operand:
            begin = now()
            out = execute(op, args, attrs, *more)
            note(begin, now(), op, args, attrs, out)
            return out

        def composed(op: Op, args: tuple[Operand, ...], attrs: Attrs) -> Operand:
            begin = now()
            out = parts(op, args, attrs)
            note(begin, now(), op, args, attrs, out)
            return out

        return one, two, several, composed

    def kernel(self, op: Op, kernel: Callable[..., Array]) -> Callable[..., Array]:
        """Wrap ``kernel``, which works on arrays, to record each call."""
        note = self._note

        def call(*args: Array, **attrs: object) -> Array:
            begin = now()
            out = kernel(*args, **attrs)
            note(begin, now(), op, args, attrs, out)
            return out

        return call

    def _recorded_creation(
        self, name: str, make: Callable[..., Operand], args: tuple[object, ...], options: dict[str, object]
    ) -> Operand:
        """Return ``make(*args, **options)``, recorded as an op called ``name``."""
        begin = now()
        out = make(*args, **options)
        tensors = tuple(each for each in args if isinstance(each, Value))
        self._note(begin, now(), factory(name), tensors, None, out)
        return out

    def _recorder(self) -> Callable[..., None]:
        """Return ``note(begin, end, op, args, attrs, out)``, which records an op on tensors or arrays.

        The common case is written out here, without calls: 0.4 us less with shapes and memory.
        """
        find, overdue, local, blocks = self.lane, self.overdue, self._local, self._blocks
        shapes, stacks = self.options.shapes, self.options.stack
        sized = shapes or blocks is not None
        owners = () if blocks is None else blocks.owners

        def note(
            begin: int, end: int, op: Op, args: Sequence[Operand], attrs: Attrs | None, out: Operand
        ) -> None:
            try:
                lane = local.lane
            except AttributeError:
                lane = find()
            signature: tuple[object, ...] | None = None
            block: object = None
            stack: tuple[Frame, ...] | None = None
            size = 0
            if sized:
                array = out.raw if isinstance(out, Value) else out
                size = getattr(array, "nbytes", 0)
                if (
                    op in owners
                    and array.__class__ is ndarray
                    and array.base is None
                    and not references(array)
                    and (out is not array or fresh(array, args))
                ):
                    block = ref(array, lane.freed)
                elif blocks is not None:
                    block = blocks.allocated(array, op, args, lane, end)
                if shapes:
                    if len(args) == 2 and isinstance(args[0], Value) and isinstance(args[1], Value):
                        a, b = args[0].raw, args[1].raw
                        signature = a.shape, a.dtype, b.shape, b.dtype
                    else:
                        signature = signature_of(args)
            if stacks:
                stack = stack_here()
            lane.extend(
                (OP, op, begin, end, lane.module, lane.phase, signature, size, attrs or None, stack, block)
            )
            if end > lane.due:
                overdue(lane)

        return note

    # ``backend`` is a Backend; the engine, whose callback this is, declares a part of it.
    def _recorded_kernel(self, backend: Any, op: Op, kernel: Callable[..., Array]) -> Callable[..., Array]:
        return (self.kernel if backend.name in _HOST else marked_kernel(self, backend))(op, kernel)

    def _recorded_visit(self, visit: Callable[[Node, Operand], None]) -> Callable[[Node, Operand], None]:
        lane = self.lane()

        def watched(node: Node, grad: Operand) -> None:
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

    def _label(self, place: Place | None) -> str:
        """Return the path, under the root's class name, of the module that created a node, or ""."""
        if place is None:
            return ""
        key = (place[0], place[1])
        label = self._labels.get(key)
        if label is None:
            root, path = place[0](), path_of(place)
            top = type(root).__name__
            label = self._labels[key] = path if root is None or path == top else f"{top}.{path}"
        return label

    def _bound(self, bound: Program) -> None:
        bound.timed(self._callbacks.marker(bound))
        if self._blocks is not None:
            self._blocks.track_arena(bound, self.lane())


def signature_of(args: Iterable[Operand]) -> tuple[object, ...]:
    """Return the signature of tensors, arrays and numbers; ``records.py`` documents its format."""
    signature: list[object] = []
    for a in args:
        array = a.raw if isinstance(a, Value) else a
        signature += (array.shape, array.dtype) if hasattr(array, "shape") else (array.__class__, None)
    return tuple(signature)


def _disable_in_child() -> None:
    """Disable the inherited tap in a forked process, as its file belongs to the parent."""
    if OPEN.tap is not None:
        OPEN.tap.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disable_in_child)
