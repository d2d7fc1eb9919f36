"""``Graph``: executed ops as data. Static single assignment; memory is written only at the end.

A node is an *input* (memory owned outside of the graph: an argument, a parameter, optimizer state), a
*constant*, a *scalar* (a Python float computed for every run: a learning rate, a bias correction) or a
*call* of an op. ``Ref(node, index)`` names one of its values. Writes into memory outside (the new value of a
parameter, a running mean) are listed in ``writes`` and happen, as far as anybody can see, when all calls
are done.

Passes use ``append``-like makers, ``replace`` and ``erase``, and end with ``verify``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tenon.engine.aval import Aval, aval_of
from tenon.engine.op import Composite, Kind, NotInferable, Op
from tenon.errors import GraphError, TenonError
from tenon.graph.scalar_functions import FUNCTIONS


class Node:
    """One input, constant, scalar or call. Compared by identity."""

    __slots__ = (
        "args",
        "attrs",
        "avals",
        "kind",
        "label",
        "module",
        "op",
        "part_of",
        "phase",
        "value",
        "where",
    )

    #: "input", "constant", "scalar" or "call".
    kind: str
    #: The op of a call; the name of a scalar's function ("input", "add", "pow", ...).
    op: Any
    #: ``Ref`` to a value, Python number, None, or what else the op takes.
    args: tuple[Any, ...]
    attrs: dict[str, Any]
    #: One per output, hidden residuals included; empty for a scalar.
    avals: tuple[Aval, ...]
    #: Of a constant its array; of an input or a scalar input what it is bound to.
    value: Any
    #: A name to print: "x", "layers.0.weight".
    label: str
    #: Module path in which the op ran.
    module: str
    #: "file:line" of the user's code that ran it, "" if unknown.
    where: str
    #: "backward" or "optimizer" where it ran in one, else "".
    phase: str
    #: The call that this one is a part of: see ``passes/decompose.py``.
    part_of: Node | None

    def __init__(self, kind: str, op: Any = None, args: tuple[Any, ...] = ()) -> None:
        self.kind = kind
        self.op = op
        self.args = args
        self.attrs = {}
        self.avals = ()
        self.value = None
        self.label = self.module = self.where = self.phase = ""
        self.part_of = None

    @property
    def name(self) -> str:
        """The op's name, or the kind."""
        return str(self.op.name) if isinstance(self.op, Op) else self.kind

    @property
    def effect(self) -> bool:
        """Whether it must run, once, and in its place among other effects: random draws, host calls."""
        return self.kind == "call" and (self.op.kind is Kind.RANDOM or self.op.kind is Kind.COLLECTIVE)

    @property
    def refs(self) -> list[Ref]:
        """The values it reads."""
        return [a for a in self.args if a.__class__ is Ref]

    def out(self, index: int = 0) -> Ref:
        """Its value number ``index``."""
        return Ref(self, index)

    def __repr__(self) -> str:
        return f"<{self.name} {' '.join(map(repr, self.avals))}>"


class Ref(NamedTuple):
    """Value number ``index`` of ``node``."""

    node: Node
    index: int  # type: ignore[assignment]

    @property
    def aval(self) -> Aval:
        """Its shape and dtype; a 0-d float64 for a scalar."""
        return self.node.avals[self.index] if self.node.avals else _SCALAR

    @property
    def scalar(self) -> bool:
        """Whether it is a Python float, not an array."""
        return self.node.kind == "scalar"


_SCALAR = Aval((), np.dtype(np.float64))


class Write(NamedTuple):
    """The memory of ``target`` (an input) receives ``value`` when the program has run."""

    target: Node
    value: Ref


class Graph:
    """Nodes in an order in which they can run, the values returned, and the writes."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.outputs: list[Ref] = []
        self.writes: list[Write] = []

    # --- construction ---

    def input(self, aval: Aval, value: Any = None, label: str = "") -> Node:
        """Add an input: memory that is owned outside of the graph."""
        return self._add(Node("input"), (aval,), value, label)

    def constant(self, array: Any, label: str = "") -> Node:
        """Add a constant: an array that never changes."""
        return self._add(Node("constant"), (Aval(tuple(array.shape), array.dtype),), array, label)

    def scalar(self, function: str, args: tuple[Any, ...] = (), value: Any = None, label: str = "") -> Node:
        """A number computed for every run: ``function`` is "input" (then ``value`` says where it comes
        from) or the name of an operator in ``scalars.py``."""
        return self._add(Node("scalar", function, args), (), value, label)

    def call(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any], avals: tuple[Aval, ...]) -> Node:
        """One run of ``op``."""
        node = Node("call", op, args)
        node.attrs = attrs
        return self._add(node, avals, None, "")

    def _add(self, node: Node, avals: tuple[Aval, ...], value: Any, label: str) -> Node:
        node.avals, node.value, node.label = avals, value, label
        self.nodes.append(node)
        return node

    # --- queries ---

    @property
    def inputs(self) -> list[Node]:
        """All inputs, in order."""
        return [n for n in self.nodes if n.kind == "input"]

    @property
    def calls(self) -> list[Node]:
        """All calls, in order."""
        return [n for n in self.nodes if n.kind == "call"]

    def roots(self) -> Iterator[Ref]:
        """The values visible outside: outputs, and values of writes."""
        yield from self.outputs
        for write in self.writes:
            yield write.value

    def users(self) -> dict[Ref, list[Node]]:
        """The nodes that read each value; outputs and writes are not nodes, so not included."""
        found: dict[Ref, list[Node]] = {}
        for node in self.nodes:
            for ref in node.refs:
                found.setdefault(ref, []).append(node)
        return found

    # --- rewriting ---

    def replace(self, changes: dict[Ref, Ref]) -> None:
        """Replace values in all readers, outputs and writes; chains of replacements are followed."""

        def final(ref: Any) -> Any:
            while ref.__class__ is Ref and ref in changes:
                ref = changes[ref]
            return ref

        if not changes:
            return
        for node in self.nodes:
            if node.args:
                node.args = tuple(final(a) for a in node.args)
        self.outputs = [final(r) for r in self.outputs]
        self.writes = [Write(w.target, final(w.value)) for w in self.writes]

    def erase(self, gone: set[Node]) -> None:
        """Remove nodes that have no readers."""
        self.nodes = [n for n in self.nodes if n not in gone]

    def verify(self) -> None:
        """GraphError unless every value exists, is made before it is read, has the shape and dtype that its
        op gives, and writes fit their targets."""
        made: set[Node] = set()
        for position, node in enumerate(self.nodes):
            for ref in node.refs:
                if ref.node not in made:
                    raise GraphError(
                        f"node {position} ({node!r}) reads {ref.node!r}, which does not come before it. The"
                        " pass that ran last broke the order."
                    )
                if not _exists(ref):
                    raise GraphError(
                        f"node {position} ({node!r}) reads output {ref.index} of {ref.node!r}, which has none"
                        " of that number. The pass that ran last put it there."
                    )
            if node in made:
                raise GraphError(f"node {position} ({node!r}) is in the graph twice.")
            made.add(node)
            found = _inferred(node)
            for index, (right, own) in enumerate(zip(found, node.avals, strict=False)):
                # A backend's kernel of a composite may keep narrow floats where the parts do not.
                parts = isinstance(node.op, Composite) and right.shape == own.shape
                if right != own and not parts:
                    raise GraphError(
                        f"node {position} ({node!r}): output {index} of {node.name} gives {right!r}, but the"
                        f" node says {own!r}. The pass that made or changed it has to set avals."
                    )
        for ref in self.roots():
            if ref.node not in made:
                raise GraphError(f"an output or write reads {ref.node!r}, which is not in the graph.")
            if not _exists(ref):
                raise GraphError(
                    f"an output or write reads output {ref.index} of {ref.node!r}, which has none of that"
                    " number."
                )
        targets: set[Node] = set()
        for target, value in self.writes:
            if target not in made or target.kind != "input":
                raise GraphError(f"a write goes to {target!r}, which is no input of the graph.")
            if target.avals[0] != value.aval:
                raise GraphError(f"a write puts {value.aval!r} into {target.label or target!r}.")
            if target in targets:
                raise GraphError(f"{target.label or target!r} is written twice. Keep the last value only.")
            targets.add(target)

    # --- text ---

    def names(self) -> dict[Node, str]:
        """A printed name for every node."""
        return {node: f"%{i}" for i, node in enumerate(self.nodes)}

    def __str__(self) -> str:
        names = self.names()
        lines = [line for node in self.nodes for line in lines_of(node, names)]
        shown = [shown_ref(r, names) for r in self.outputs]
        lines.append(f"return {', '.join(shown)}")
        lines += [f"{w.target.label or names[w.target]} <- {shown_ref(w.value, names)}" for w in self.writes]
        return "\n".join(lines)

    def __len__(self) -> int:
        return len(self.nodes)


def _exists(ref: Ref) -> bool:
    """Whether its node has an output of that number."""
    return 0 <= ref.index < max(len(ref.node.avals), ref.node.kind == "scalar")


def _inferred(node: Node) -> tuple[Any, ...]:
    """The avals that a node must have, as far as they follow from its arguments."""
    if node.kind == "constant":
        return (aval_of(node.value),)
    if node.kind == "scalar" and node.op != "input" and node.op not in FUNCTIONS:
        raise GraphError(f"{node!r}: there is no function {node.op!r} of numbers.")
    if node.kind != "call" or node.op.kind is Kind.RANDOM or node.op.kind is Kind.COLLECTIVE:
        return ()
    attrs = {name: value for name, value in node.attrs.items() if name != "layouts"}
    try:
        found = node.op.infer(*map(_given, node.args), **attrs)
    except NotInferable:
        return ()
    except TenonError as error:
        raise GraphError(f"{node!r}: {node.name} does not take its arguments: {error}") from error
    return found if isinstance(found, tuple) else (found,)


def _given(value: Any) -> Any:
    """An argument as ``infer`` takes it; a number that changes from run to run is any float."""
    return value if value.__class__ is not Ref else 1.0 if value.scalar else value.aval


def shown_ref(ref: Any, names: dict[Node, str]) -> str:
    """``%3``, ``%3.1`` for a second output, or the literal."""
    if ref.__class__ is not Ref:
        return repr(ref)
    return names[ref.node] + (f".{ref.index}" if ref.index else "")


def lines_of(node: Node, names: dict[Node, str]) -> list[str]:
    """One node as a line of text; the steps of a cluster follow, one a line."""
    avals = ", ".join(map(repr, node.avals)) or "float"
    parts = [shown_ref(a, names) for a in node.args]
    attrs = [f"{k}={v!r}" for k, v in node.attrs.items() if k != "cluster"]
    made = node.op if node.kind == "scalar" else node.name
    called = node.kind != "input" and node.kind != "constant"
    body = f"{made}({', '.join(parts + attrs)})" if called else made
    notes = " ".join(t for t in (node.label, node.module, node.where) if t)
    line = f"{names[node]}: {avals} = {body}" + (f"  # {notes}" if notes else "")
    cluster = node.attrs.get("cluster")
    if cluster is None:
        return [line]
    steps = cluster.lines([*parts, *(f".{i}" for i in range(len(cluster.steps)))])
    return [line, *(f"    {step}" for step in steps)]
