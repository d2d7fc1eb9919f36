"""``Recorder``: the interceptor that turns one real execution into a graph.

Every op runs as usual and is recorded. Events that are not ops reach the recorder as callbacks from
``tenon.engine.watchers``: arrays created from Python data, in-place changes, random draws, values read by
Python. Values are tracked by the identity of their arrays, see ``values.py``.

Next: ``compile.py`` decides when to record, and what the graph's inputs are bound to.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tenon.engine import scopes
from tenon.engine.accumulate import CHANGED_EAGERLY
from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, Kind, NotInferable, Op, table
from tenon.engine.operands import with_plain_numbers
from tenon.engine.types import Arguments, Array, Attrs, Nested
from tenon.engine.watchers import WATCHERS
from tenon.errors import CaptureError
from tenon.graph.graph import Graph, Node, NodeArgument, Ref
from tenon.graph.guards import Guard
from tenon.graph.leaf_gradients import LeafGradients
from tenon.graph.optimizer_options import OptimizerOptions
from tenon.graph.scalars import Scalar, plain
from tenon.graph.side_effects import SideEffects
from tenon.graph.values import Entry, Values
from tenon.kernels.backend import Backend
from tenon.kernels.promotion import unify
from tenon.random.generator import Watch
from tenon.tensors.call_site import user_line
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module
    from tenon.optim.optimizer import Optimizer


class Recorder(SideEffects, OptimizerOptions, LeafGradients):
    """Records the ops that one thread runs between ``start`` and ``stop`` into ``graph``."""

    #: Whether the recording is one of several at other sizes, which have to run the same ops.
    any_size = False

    def __init__(self, backend: Backend, strict: bool = False) -> None:
        super().__init__()
        self.graph = Graph()
        #: Whether to raise a CaptureError where the function cannot be recorded; else it is stored in
        #: ``failure``.
        self.strict = strict
        #: Why the call could not be recorded; None if it could.
        self.failure: CaptureError | None = None
        self.backend = backend
        self.values = Values(self.graph, backend)
        self.guards: list[Guard] = []
        self.value_guards: list[Guard] = []
        #: External tensors that ops read, by id of the array, with their input nodes.
        self.outside: dict[int, tuple[Node, Tensor]] = {}
        #: Leaves that ops read, by id: their gradients may change.
        self.leaves: dict[int, Tensor] = {}
        #: The outermost modules that ran, by id.
        self.roots: dict[int, Module] = {}
        #: The optimizers that made steps, by id.
        self.optimizers: dict[int, Optimizer] = {}
        #: Callbacks that repeat Python's side effects after every replay.
        self.after: list[Callable[[], None]] = []
        self.expects = False
        self.final_checks: list[Callable[[], str | None]] = []
        #: Why to discard this recording and record the next call instead: see ``discard``.
        self.discard_reason: str | None = None
        self._scalars: dict[Hashable, Scalar | None] = {}
        self._counts: dict[Hashable, tuple[Scalar, list[Tensor]]] = {}
        #: References to external arrays and constants, so that their ids stay unique.
        self._kept: list[Array] = []
        #: Ids of the optimizers whose schedule has stepped.
        self._rescheduled: set[int] = set()
        self._paused = False
        #: Whether a backward pass is running.
        self._backward = False
        #: The listener of ``WATCHERS.span`` before this one.
        self._span: Callable[[str, str], contextlib.AbstractContextManager[object]] | None = None
        self._thread = threading.get_ident()
        self._read = backend.to_host

    # --- start and stop ---

    def start(self) -> None:
        """Start recording."""
        if WATCHERS.recorder is not None:
            raise CaptureError(
                "a compiled function was called while another is being recorded in another thread. Record "
                "one after the other: call each once from one thread first."
            )
        WATCHERS.recorder = self
        self._span, WATCHERS.span = WATCHERS.span, self._spanning
        SLOT.push(self)
        Watch.changed = self.reseeded
        vars(self.backend)["to_host"] = self._host_read

    def stop(self) -> None:
        """Stop recording; idempotent, so that an interrupted call can be repeated."""
        SLOT.pop(self)
        if WATCHERS.recorder is self:
            vars(self.backend).pop("to_host", None)
            Watch.changed = None
            WATCHERS.recorder, WATCHERS.span = None, self._span

    @contextlib.contextmanager
    def _spanning(self, name: str, phase: str) -> Iterator[None]:
        """Listen to ``WATCHERS.span``: note which ops belong to a backward pass."""
        before, self._backward = self._backward, self._backward or phase == "backward"
        try:
            with contextlib.nullcontext() if self._span is None else self._span(name, phase):
                yield
        finally:
            self._backward = before

    def _phase(self) -> str:
        """Return the phase of the op that is running: see ``Node.phase``."""
        if any(vars(optimizer).get("_stepping") for optimizer in self.optimizers.values()):
            return "optimizer"
        return "backward" if self._backward else ""

    # --- ops ---

    def run(self, op: Op, args: Arguments, attrs: Attrs) -> Nested:
        """Execute ``op`` and record it."""
        below = SLOT.below(self)
        if threading.get_ident() != self._thread:
            return below(op, args, attrs)
        if self.failure is not None or self._paused:
            return below(op, tuple(plain(a) for a in args), attrs)
        if isinstance(op, Composite) and not op.differentiable and MODE.enabled and _any_tracked(args):
            return SLOT.parts(op, args, attrs)
        numbers = with_plain_numbers(op, tuple(plain(a) for a in args))
        promoted = unify(op, numbers) if op.promotion is not None else numbers
        try:
            if op.crosses:
                raise CaptureError(
                    f"{op.name} moves a value to {attrs.get('device')}: a compiled function stays on one "
                    "device. Move its inputs before the call."
                )
            refs = tuple(
                a.node.out() if a.__class__ is Scalar else self.ref(g) if isinstance(g, Tensor) else g
                for a, g in zip(args, promoted, strict=True)
            )
        except CaptureError as error:
            self.refuse(error)
            return below(op, promoted, attrs)
        first = promoted[0] if promoted else None
        parent = self.values.find(first.raw) if isinstance(first, Tensor) else None
        self._paused = op.kind is Kind.COLLECTIVE  # ops that it runs are part of this call
        try:
            out = below(op, promoted, attrs)
        finally:
            self._paused = False
        with self.refusing():
            self._append_call(op, refs, attrs, out, parent)
        here = scopes.running.place
        if here is not None and id(here[0]) not in self.roots:
            root = here[0]()
            if root is not None:
                self.roots[id(here[0])] = root
        return out

    def refuse(self, error: CaptureError) -> None:
        """Give up recording with a reason; the function continues unrecorded unless errors are requested."""
        if self.strict:
            raise error
        self.failure = self.failure or error

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Turn a CaptureError inside into ``failure``."""
        try:
            yield
        except CaptureError as error:
            self.refuse(error)

    def _listens(self) -> bool:
        return self.failure is None and not self._paused and threading.get_ident() == self._thread

    def _append_call(
        self,
        op: Op,
        refs: tuple[NodeArgument, ...],
        attrs: Attrs,
        out: Tensor | tuple[Tensor, ...],
        parent: Entry | None,
    ) -> None:
        """Append the call of ``op`` that returned ``out``; ``parent`` is the entry of its first argument."""
        tensors = out if isinstance(out, tuple) else (out,)
        raws = [t.raw for t in tensors]
        if op.kind is not Kind.RANDOM and not any(r.__class__ is Ref for r in refs):
            for raw in raws:  # computed from numbers only
                self.made(raw)
            return
        if op.outputs == 1 and op.kind is not Kind.RANDOM and not self._has_static_shape(op, refs, attrs):
            raise CaptureError(
                f"{op.name} returns a result whose shape depends on the data, at {user_line()}. A compiled "
                "function has static shapes: use a form with a fixed shape (masked_fill, where), or leave "
                "this part out of it."
            )
        grad_fn = tensors[0]._node if tensors else None  # an effect has no results
        recorded = grad_fn is not None and grad_fn.op is op
        hidden: tuple[Array, ...] = ()
        if grad_fn is not None and recorded and op.residuals:
            # Kernels may return NumPy scalars for 0-d arrays; values are identified by their arrays.
            hidden = tuple(np.asarray(r) if isinstance(r, np.generic) else r for r in grad_fn.residuals)
            grad_fn.residuals = hidden
        arrays = [r for r in (*raws, *hidden) if hasattr(r, "shape")]
        avals = tuple(Aval(tuple(r.shape), r.dtype) for r in (*raws, *hidden) if hasattr(r, "shape"))
        node = self.graph.call(op, refs, dict(attrs), avals)
        node.module = scopes.path_of(scopes.running.place)
        node.where = user_line()
        node.phase = self._phase()
        for index, raw in enumerate(arrays):
            if op.view and parent is not None and index < len(raws) and _shares(raw, parent.array()):
                single, single_attrs = (op, attrs) if op.outputs == 1 else op.view_of(index, **attrs)
                if self.values.find(raw) is None:  # contiguous() of a contiguous array is that array
                    self.values.add_view(raw, parent, single, single_attrs, node.out(index))
            else:
                self.values.add(raw, node.out(index))

    def _has_static_shape(self, op: Op, refs: tuple[NodeArgument, ...], attrs: Attrs) -> bool:
        """Whether the shape of the result does not depend on values."""
        try:
            op.infer(*(r.aval if r.__class__ is Ref else r for r in refs), **attrs)
        except NotInferable:
            return False
        return True

    def ref(self, tensor: Tensor) -> Ref:
        """Return the graph value that ``tensor`` holds."""
        raw = tensor.raw
        if tensor._backend is not self.backend:
            if tensor._backend.own is self.backend:
                raise CaptureError(f"a DTensor is used at {user_line()}, which programs do not compute on.")
            raise CaptureError(
                f"a tensor on {tensor.device} is used in a function compiled for {self.backend.name}, at "
                f"{user_line()}. Move it there before the call."
            )
        entry = self.values.find(raw)
        if tensor._track and tensor._node is None:
            self.leaves[id(tensor)] = tensor
        if entry is None:
            entry = self._add_input(tensor)
        return self.values.read(entry)

    def _add_input(self, tensor: Tensor) -> Entry:
        """Add an input for an external tensor that is read for the first time."""
        raw = tensor.raw
        if raw.base is not None:
            for known in list(self.values.entries.values()):
                array = known.array()
                if array is not None and known.storage.node is None and _overlap(array, raw):
                    raise CaptureError(
                        f"a tensor of shape {list(raw.shape)} shares memory with a value computed here, but"
                        f" no op created it as a view (at {user_line()}). Use tenon's ops to create views."
                    )
        if tensor._track and tensor._node is not None:
            raise CaptureError(
                f"a tensor of shape {list(raw.shape)} that was computed outside with gradients is used at "
                f"{user_line()}. Pass it as an argument, or compute it inside."
            )
        node = self.graph.input(Aval(tuple(raw.shape), raw.dtype), tensor)
        self.outside[id(raw)] = (node, tensor)
        self._kept.append(raw)
        return self.values.add(raw, node.out())

    def argument(self, tensor: Tensor, label: str) -> Node:
        """Add and return an input for an argument, whose memory differs from call to call."""
        node = self.graph.input(Aval(tuple(tensor.raw.shape), tensor.raw.dtype), None, label)
        self.values.add(tensor.raw, node.out())
        self._kept.append(tensor.raw)
        return node

    # --- events that are not ops ---

    def made(self, array: Array) -> None:
        """Callback: ``array`` was created from Python data, or filled with one value."""
        if self._listens() and self.values.find(array) is None:
            self._kept.append(array)
            self.values.add(array, self.graph.constant(array).out())

    def copied(self, array: Array, source: Tensor) -> None:
        """Callback: ``array`` is a copy of the tensor ``source``, made without an op."""
        if self._listens():
            self._kept.append(array)
            with self.refusing():
                self.values.add(array, self.ref(source))

    def writing(self, tensor: Tensor) -> None:
        """Callback: the memory of ``tensor`` is about to change; a constant in it is copied first."""
        if not self._listens():
            return
        with self.refusing():
            if CHANGED_EAGERLY in tensor.__dict__:
                raise CaptureError(f"it changes {tensor.__dict__[CHANGED_EAGERLY]}, at {user_line()}.")
            self.ref(tensor)
            entry = self.values.find(tensor.raw)
            node = None if entry is None else entry.storage.node
            if (
                entry is not None
                and node is not None
                and node.kind == "constant"
                and not entry.storage.written
            ):
                node.value = node.value.copy()

    def wrote(self, tensor: Tensor, array: Array) -> None:
        """Callback: ``array`` was copied into the memory of ``tensor``."""
        if self._listens():
            with self.refusing():
                self._wrote(tensor, array)

    def _wrote(self, tensor: Tensor, array: Array) -> None:
        entry = self.values.find(tensor.raw)
        source = self.values.find(array)
        if entry is None or source is None:
            raise CaptureError(
                f"values that no op computed were written into a tensor of shape {list(tensor.raw.shape)}, at"
                f" {user_line()}. Use tenon's ops, or leave this part out of the compiled function."
            )
        value = self.values.read(source)
        target = entry.ref.aval
        if value.aval.dtype != target.dtype:
            attrs = {"dtype": target.dtype}
            cast = self.graph.call(table.cast, (value,), attrs, (Aval(value.aval.shape, target.dtype),))
            value = cast.out()
        self.values.write(entry, value)

    def discard(self, why: str) -> None:
        """Discard the recording of this call, which did one-time setup; record the next call instead."""
        self.discard_reason = self.discard_reason or why


def _any_tracked(args: tuple[object, ...]) -> bool:
    """Whether a gradient flows to any of ``args``."""
    return any(isinstance(a, Tensor) and (a._track or a._stale()) for a in args)


def _shares(view: Array, array: Array | None) -> bool:
    return array is not None and (view is array or _overlap(view, array))


def _overlap(a: Array, b: Array) -> bool:
    return bool(np.may_share_memory(a, b))
