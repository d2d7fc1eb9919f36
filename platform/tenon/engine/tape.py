"""The tape: one ``Node`` per recorded op, holding exactly what its gradient rules declared to need.

``edges`` has the destination of each input's gradient: ``(node, output index)``, ``(leaf tensor, -1)``, or
None. ``args`` mirrors the op's arguments as rules see them: the array that a rule reads, or an aval (or a
small array) where it reads only the shape. ``saved`` holds the tensors of those arrays, ``versions`` their
version numbers: ``backward`` raises ModifiedValueError for values that were modified in place since.

This file is hot: ``record`` runs once per taped op.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from tenon.engine import scopes
from tenon.engine.aval import Aval
from tenon.engine.grad_mode import UNCOUNTED
from tenon.engine.plans import EngineBackend, Plan
from tenon.engine.types import Arguments, Array, Attrs, Gradient, Operand
from tenon.engine.value import Value, refuse_saving, uncounted
from tenon.errors import FreedGraphError, ModifiedValueError

#: The destination of a gradient: ``(node, output index)``, or ``(leaf, LEAF)``; the index distinguishes them.
Target: TypeAlias = tuple[Any, int]
#: The target of an input's gradient; None for an input without gradient.
Edge: TypeAlias = Target | None
Edges: TypeAlias = Sequence[Edge]
#: Hooks by the number of their handle.
Hooks: TypeAlias = MutableMapping[int, Callable[..., Any]]

_running = scopes.running
next_number = itertools.count().__next__  # orders nodes by creation time
#: In an edge, the index of an input that is a leaf.
LEAF = -1
#: Key of the saved output among a node's packed values; inputs have their position.
OUT = -1
_NEITHER, _BOTH = (False, False), (True, True)
_SMALL = 512  # bytes; a smaller array is kept instead of an Aval, whose construction costs 0.25 us


class Packed(Protocol):
    """A saved value as a pack hook has stored it."""

    def unpack(self) -> Value:
        """The value as a tensor."""
        ...


class Node:
    """Gradient of one executed op. Its repr is PyTorch's: ``<AddBackward0 object at ...>``."""

    __slots__ = (
        "__dict__", "__weakref__", "args", "attrs", "backend", "edges", "module", "op", "out", "out_counter",
        "plan", "saved", "seq", "versions", "watched",
    )  # fmt: skip

    # Rarely set, so stored in __dict__ only when they are.
    out_version: int = 0
    hooks: dict[int, Hooks] | None = None  # output index -> {id: hook on that output's gradient}
    retained: dict[int, weakref.ref[Value]] | None = (
        None  # output index -> weakref of a tensor with retain_grad
    )
    node_hooks: Hooks | None = None
    node_prehooks: Hooks | None = None
    residuals: tuple[Array, ...] = ()
    output_avals: Any = None  # a tuple of Aval | None (an output that is not a tensor), where it is known
    packed: dict[int, Packed] | None = None  # what pack hooks made of saved values, by position or ``OUT``
    title: str = ""  # PyTorch's name, if this is the last of several nodes that are one in PyTorch

    op: Any  # an Op; a StandIn on a CustomNode
    #: The op's entry in ``backend.plans``.
    plan: Plan
    backend: EngineBackend
    edges: Edges
    #: Arguments of the rules: arrays (avals where only the shape is read) and numbers; None once freed.
    args: Any  # a list; without Optional, as hot code has checked it
    #: Parallel to ``args``: the tensors whose values are saved, None elsewhere; None if no value is saved.
    saved: Any  # a sequence of Value | None, or None
    #: Versions of ``saved`` when the op ran.
    versions: Any  # a sequence of int; None where ``saved`` is
    attrs: Attrs
    seq: int
    #: The module call in which the op ran: see ``scopes.running``.
    module: scopes.Place | None
    #: Has hooks, a retained gradient or is a requested input: the sweep leaves its fast path.
    watched: bool
    out: Array | None
    out_counter: list[int] | None

    def name(self) -> str:
        """PyTorch's name of this node, as printed in ``grad_fn=<...>``."""
        return self.title or str(self.op.torch_name(self.args or (), self.attrs))

    def check(self) -> None:
        """Raise FreedGraphError if the saved values are gone, ModifiedValueError if one was modified in
        place."""
        if self.args is None:
            raise FreedGraphError(
                "Trying to backward through the graph a second time (or directly access saved tensors after"
                " they have already been freed). Saved intermediate values of the graph are freed when you"
                " call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward"
                " through the graph a second time or if you need to access saved tensors after calling"
                f" backward. (op {self.op.name}{self._where()})"
            )
        if self.saved is not None:
            for value, then in zip(self.saved, self.versions, strict=True):
                if value is not None:
                    counter = value._version_counter
                    if counter is not None and counter[0] != then:
                        self._modified(value.raw, counter[0], then, "input")
        if self.overwritten() and not self.op.repeats:
            self._modified(self.out, self.out_counter[0], self.out_version, "output")  # type: ignore[index]

    def overwritten(self) -> bool:
        """Whether the saved output was modified in place after the op ran."""
        return self.out_counter is not None and self.out_counter[0] != self.out_version

    def values(self) -> tuple[list[Operand], Any]:  # the output as a Tensor, or None
        """Arguments and output as tensors with history (arrays where only shapes matter), after ``check``."""
        self.check()
        arguments, out, packed = list(self.args), None, self.packed or {}
        for i, value in enumerate(self.saved or ()):
            if value is not None:
                arguments[i] = value
        for position, each in packed.items():
            if position != OUT:
                arguments[position] = each.unpack()
        if OUT in packed:
            result = packed[OUT].unpack()
            out = Value.make(result.raw, result._backend)  # the hook's own tensor must not keep the node
            out._node, out._track = self, True
        elif self.out is not None:
            again = self.overwritten()  # ``check`` accepts this for ops that ``repeat``
            out = self.op(*arguments, **self.attrs) if again else self.output_tensor(self.out)
        return arguments, out

    def output_tensor(self, raw: Array) -> Value:
        """``raw``, this node's saved output, as a tensor whose history is this node."""
        tensor = Value.make(raw, self.backend)
        tensor._version_counter = self.out_counter
        tensor._node, tensor._track = self, True
        return tensor

    def unpacked_residuals(self) -> tuple[Array, ...]:
        """The hidden outputs, as arrays."""
        return tuple(r.unpack().raw if hasattr(r, "unpack") else r for r in self.residuals)

    def _modified(self, raw: Array, now: int, then: int, what: str) -> None:
        raise ModifiedValueError(
            "one of the variables needed for gradient computation has been modified by an inplace operation:"
            f" the {what} {list(raw.shape)} of {self.op.name}{self._where()} is at version {now}; expected"
            f" version {then} instead. Its gradient needs the value as it was: use the out-of-place form, or"
            " clone() before modifying it."
        )

    def _where(self) -> str:
        path = scopes.path_of(getattr(self, "module", None))
        return f" in module {path}" if path else ""

    def release(self) -> None:
        """Free the saved values after their last use."""
        if self.saved is not None or self.out is not None or self.residuals or self.packed is not None:
            self.args = self.saved = self.out = self.out_counter = None
            if self.packed is not None:
                self.packed = None
            if self.residuals:
                self.residuals = ()

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class StandIn:
    """Stands for ``Node.op`` on a ``CustomNode``; ``title`` is PyTorch's class name of such a node."""

    residuals = 0
    joint = None

    def __init__(
        self, name: str, title: str, outputs: int = 1, simple: bool = True, saves: tuple[str, ...] = ()
    ) -> None:
        self.name, self.title, self.outputs, self.simple, self.saves = name, title, outputs, simple, saves

    def torch_name(self, args: Arguments, attrs: Attrs) -> str:
        """Return the title."""
        return self.title


class CustomNode(Node):
    """Base of nodes that belong to no op, as of custom Functions: derive and define ``apply_tensors``."""

    __slots__ = ()

    def __init__(self, op: StandIn, backend: EngineBackend, inputs: Iterable[object]) -> None:
        self.op = op
        self.backend = backend
        self.attrs = {}
        self.args = ()
        self.saved = self.versions = self.out = self.out_counter = None
        self.watched = False
        self.edges = tuple(edge_of(i) for i in inputs)
        self.seq = next_number()
        self.module = _running.place

    def apply_tensors(self, grad: Gradient, create_graph: bool) -> Sequence[Value | None]:
        """Gradients of the inputs (None for an input without one) from the output's gradient, or the list
        of those of several outputs."""
        raise TypeError(f"{type(self).__name__} defines no apply_tensors.")

    def apply_nothing(self, create_graph: bool) -> Sequence[Value | None]:
        """As ``apply_tensors`` if no gradient reached this node."""
        return [None] * len(self.edges)

    def release(self) -> None:
        """Do nothing: no value is saved."""


def edge_of(value: object) -> Edge:
    """The edge along which ``value``'s gradient flows: ``(node, output index)``, ``(leaf, -1)``, or None."""
    if not isinstance(value, Value) or not (value._track or value._stale()):
        return None
    if value._view is not None:
        value._refresh()
    return (value, -1) if value._node is None else (value._node, value._index)


_new_node = Node.__new__


def record(
    plan: Plan, backend: EngineBackend, args: Arguments, raw: list[Operand], attrs: Attrs
) -> Node | None:
    """Make the node of one executed op, which then owns ``raw``; None if all inputs are inference tensors."""
    node = _new_node(Node)
    node.op = plan.op
    node.plan = plan
    node.backend = backend
    node.attrs = attrs
    node.args = raw
    node.out = node.out_counter = None
    node.watched = False
    node.seq = next_number()
    edges: list[Edge] = []
    bits, bit = 0, 1
    for a in args:
        if isinstance(a, Value) and a._track:
            if a._view is not None:
                a._refresh()
            n = a._node
            edges.append((a, -1) if n is None else (n, a._index))
            if n is None and a._version_counter is UNCOUNTED and uncounted(args):
                return None
            bits |= bit
        else:
            edges.append(None)
        bit += bit
    node.edges = edges
    keeps: Any = plan.keeps  # narrowed by its class: 20 ns less than isinstance
    if keeps.__class__ is dict:
        keeps = keeps[bits]
    if keeps is None:
        node.saved = node.versions = None
        i = 0
        for a in args:
            if isinstance(a, Value):
                r = a.raw
                if r.nbytes >= _SMALL or r.base is not None:
                    raw[i] = Aval(r.shape, r.dtype)
            i += 1
    else:
        _keep(node, keeps, args, raw)
    node.module = _running.place
    return node


def record_pair(plan: Plan, backend: EngineBackend, x: Value, y: Value, attrs: Attrs) -> Node | None:
    """``record`` unrolled for two tensors: 0.6 us instead of 1.1."""
    node = _new_node(Node)
    node.op = plan.op
    node.plan = plan
    node.backend = backend
    node.attrs = attrs
    node.out = node.out_counter = None
    node.watched = False
    node.seq = next_number()
    node.module = _running.place
    bits = 0
    to_x = to_y = None
    if x._track:
        if x._view is not None:
            x._refresh()
        n = x._node
        to_x = (x, -1) if n is None else (n, x._index)
        bits = 1
    if y._track:
        if y._view is not None:
            y._refresh()
        n = y._node
        to_y = (y, -1) if n is None else (n, y._index)
        bits += 2
    if n is None and x._version_counter is UNCOUNTED is y._version_counter:
        return None
    node.edges = (to_x, to_y)
    keeps: Any = plan.keeps  # narrowed by its class: 20 ns less than isinstance
    if keeps.__class__ is dict:
        keeps = keeps[bits]
    keeps_x, keeps_y = _NEITHER if keeps is None else _BOTH if keeps is True else keeps
    r, s = x.raw, y.raw
    if not keeps_x and (r.nbytes >= _SMALL or r.base is not None):
        r = Aval(r.shape, r.dtype)
    if not keeps_y and (s.nbytes >= _SMALL or s.base is not None):
        s = Aval(s.shape, s.dtype)
    node.args = [r, s]
    if keeps is None:
        node.saved = node.versions = None
    else:
        node.saved = (x if keeps_x else None, y if keeps_y else None)
        counter, other = x._version_counter, y._version_counter
        node.versions = (
            _version(counter) if keeps_x and counter is not None else 0,
            _version(other) if keeps_y and other is not None else 0,
        )
    return node


def _version(counter: list[int]) -> int:
    """The version in ``counter``; GradError if it belongs to an inference-mode tensor."""
    if counter is UNCOUNTED:
        refuse_saving()
    return counter[0]


def record_single(plan: Plan, backend: EngineBackend, x: Value, attrs: Attrs) -> Node | None:
    """``record`` unrolled for one tracked tensor."""
    node = _new_node(Node)
    node.op = plan.op
    node.plan = plan
    node.backend = backend
    node.attrs = attrs
    node.out = node.out_counter = None
    node.watched = False
    node.seq = next_number()
    node.module = _running.place
    if x._view is not None:
        x._refresh()
    n = x._node
    if n is None and x._version_counter is UNCOUNTED:
        return None
    node.edges = ((x, -1) if n is None else (n, x._index),)
    keeps = plan.keeps
    r = x.raw
    if (keeps[1] if keeps.__class__ is dict else keeps) is None:
        node.saved = node.versions = None
        node.args = [Aval(r.shape, r.dtype) if r.nbytes >= _SMALL or r.base is not None else r]
    else:
        node.saved = (x,)
        counter = x._version_counter
        node.versions = (0 if counter is None else _version(counter),)
        node.args = [r]
    return node


def _keep(node: Node, keeps: Literal[True] | tuple[bool, ...], args: Arguments, raw: list[Operand]) -> None:
    """Set ``saved`` and ``versions``; avals in ``raw`` for inputs not saved. ``keeps``: True or a mask."""
    saved: list[Value | None] = []
    versions: list[int] = []
    last = 0 if keeps is True else len(keeps) - 1
    i = 0
    for a in args:
        if not isinstance(a, Value):
            saved.append(None)
            versions.append(0)
        elif keeps is True or keeps[i if i < last else last]:
            saved.append(a)
            counter = a._version_counter
            versions.append(0 if counter is None else _version(counter))
        else:
            saved.append(None)
            versions.append(0)
            r = a.raw
            if r.nbytes >= _SMALL or r.base is not None:
                raw[i] = Aval(r.shape, r.dtype)
        i += 1
    node.saved = saved
    node.versions = versions
