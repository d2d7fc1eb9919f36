"""``Graph``: executed ops as data, in static single assignment form.

A node is an *input* (memory owned by the caller: an argument, a parameter, optimizer state), a *constant*, a
*scalar* (a Python float computed for every run: a learning rate, a bias correction) or a *call* of an op.
``Ref(node, index)`` names one of its values. Values never change. Writes into the memory of inputs (the new
value of a parameter, a running mean) are listed in ``writes``; they take effect when all calls are done.

Passes append nodes by ``input``, ``constant``, ``scalar`` and ``call``, rewire them by ``replace`` and
``erase``, and end with ``verify``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tenon.engine.aval import Aval, aval_of
from tenon.engine.op import Composite, Kind, NotInferable, Op
from tenon.engine.types import Array, Attrs
from tenon.errors import GraphError, TenonError
from tenon.graph.scalar_functions import FUNCTIONS

#: An argument of a node: a ``Ref`` to a value, a Python number, None, or another object that the op accepts
#: (a dtype, a slice), as the parameters of the op's ``infer`` declare.
NodeArgument: TypeAlias = Any
#: The value of a node that is not a call: an array, a tensor, a ``Reading`` or None; see ``Node.value``.
NodeValue: TypeAlias = Any


class Source(NamedTuple):
    """A recorded call that a kernel executes: its op, and where it ran; see the attributes of ``Node``."""

    op: str
    module: str
    where: str
    phase: str


class Node:
    """One input, constant, scalar or call. Nodes are compared by identity."""

    __slots__ = (
        "args",
        "attrs",
        "avals",
        "function",
        "kind",
        "label",
        "module",
        "op",
        "part_of",
        "phase",
        "sources",
        "value",
        "where",
    )

    #: "input", "constant", "scalar" or "call".
    kind: str
    #: The op of a call. None for other nodes, whose op nothing reads but to compare it.
    op: Op
    #: A scalar's function, "input" or a key of ``scalar_functions.FUNCTIONS``; "" for other nodes.
    function: str
    #: Positional arguments of the op or of the scalar's function.
    args: tuple[NodeArgument, ...]
    #: Keyword arguments of the op.
    attrs: Attrs
    #: Shape and dtype of each output, hidden residuals included; empty for a scalar.
    avals: tuple[Aval, ...]
    #: The array of a constant; the tensor of an input that is a parameter or state, None for an argument; the
    #: ``Reading`` of a scalar input.
    value: NodeValue
    #: A name to print, such as ``"layers.0.weight"``; "" if there is none.
    label: str
    #: The path of the module in which the op ran; "" outside of modules.
    module: str
    #: ``"file:line"`` of the user's code that ran the op; "" if unknown.
    where: str
    #: "backward" or "optimizer" for ops of a backward pass or an optimizer's step, else "".
    phase: str
    #: Of a call that a pass made of several, the calls that were recorded; else empty: see ``sources_of``.
    sources: tuple[Source, ...]
    #: The call of a composite of which this call is a part: see ``passes/decompose.py``.
    part_of: Node | None

    def __init__(self, kind: str, op: Op | None = None, args: tuple[NodeArgument, ...] = ()) -> None:
        self.kind = kind
        self.op = op  # type: ignore[assignment]
        self.function = ""
        self.args = args
        self.attrs = {}
        self.avals = ()
        self.value = None
        self.label = self.module = self.where = self.phase = ""
        self.sources = ()
        self.part_of = None

    @property
    def name(self) -> str:
        """The name of a call's op; the kind of another node."""
        return self.op.name if self.kind == "call" else self.kind

    @property
    def effect(self) -> bool:
        """Whether the call must run exactly once, in order among other effects: random draws, host calls."""
        return self.kind == "call" and (self.op.kind is Kind.RANDOM or self.op.kind is Kind.COLLECTIVE)

    @property
    def refs(self) -> list[Ref]:
        """The values that the node reads."""
        return [a for a in self.args if a.__class__ is Ref]

    def out(self, index: int = 0) -> Ref:
        """Return a reference to output number ``index``."""
        return Ref(self, index)

    def __repr__(self) -> str:
        return f"<{self.name} {' '.join(map(repr, self.avals))}>"


class Ref(NamedTuple):
    """A reference to output number ``index`` of ``node``."""

    node: Node
    index: int  # type: ignore[assignment]

    @property
    def aval(self) -> Aval:
        """Shape and dtype of the value; a 0-d float64 for a scalar."""
        return self.node.avals[self.index] if self.node.avals else _SCALAR

    @property
    def scalar(self) -> bool:
        """Whether the value is a Python float, not an array."""
        return self.node.kind == "scalar"


_SCALAR = Aval((), np.dtype(np.float64))


def sources_of(*nodes: Node) -> tuple[Source, ...]:
    """Return the recorded calls that ``nodes`` were made of, each once: themselves, or what was fused."""
    sources: dict[Source, None] = {}
    for node in nodes:
        own = Source((node.part_of or node).name, node.module, node.where, node.phase)
        sources.update(dict.fromkeys(node.sources or (own,)))
    return tuple(sources)


class Write(NamedTuple):
    """A write of ``value`` into the memory of the input ``target``, at the end of each run."""

    target: Node
    value: Ref


class Graph:
    """Nodes, outputs and writes of a recorded computation.

    Printed, each node is a line: its number, the dtype and shape of each output, the op with its arguments,
    and as a comment its label, module and source line. Outputs and writes follow.

    >>> import tenon
    >>> graph = Graph()
    >>> weight = graph.input(Aval((3,), np.dtype("float32")), label="weight")
    >>> gradient = graph.input(weight.avals[0], label="gradient")
    >>> rate = graph.scalar("input", label="lr")
    >>> step = graph.call(tenon.ops.mul, (gradient.out(), rate.out()), {}, weight.avals)
    >>> new = graph.call(tenon.ops.sub, (weight.out(), step.out()), {}, weight.avals)
    >>> graph.outputs.append(step.out())
    >>> graph.writes.append(Write(weight, new.out()))
    >>> graph.verify()
    >>> print(graph)
    %0: float32[3] = input  # weight
    %1: float32[3] = input  # gradient
    %2: float = input()  # lr
    %3: float32[3] = mul(%1, %2)
    %4: float32[3] = sub(%0, %3)
    return %3
    weight <- %4
    """

    def __init__(self) -> None:
        #: All nodes, each after those that it reads.
        self.nodes: list[Node] = []
        #: The values that a run returns.
        self.outputs: list[Ref] = []
        #: The values that a run stores in the memory of inputs.
        self.writes: list[Write] = []

    # --- construction ---

    def input(self, aval: Aval, value: object = None, label: str = "") -> Node:
        """Add an input: memory that the caller owns."""
        return self._add(Node("input"), (aval,), value, label)

    def constant(self, array: Array, label: str = "") -> Node:
        """Add a constant: an array that never changes."""
        return self._add(Node("constant"), (Aval(tuple(array.shape), array.dtype),), array, label)

    def scalar(
        self, function: str, args: tuple[NodeArgument, ...] = (), value: object = None, label: str = ""
    ) -> Node:
        """Add a number computed for every run by ``function``: a name in ``scalar_functions.FUNCTIONS``, or
        "input" for a number read by ``value``, a ``scalars.Reading``."""
        node = Node("scalar", None, args)
        node.function = function
        return self._add(node, (), value, label)

    def call(self, op: Op, args: tuple[NodeArgument, ...], attrs: Attrs, avals: tuple[Aval, ...]) -> Node:
        """Add a call of ``op`` with outputs of shapes and dtypes ``avals``."""
        node = Node("call", op, args)
        node.attrs = attrs
        return self._add(node, avals, None, "")

    def _add(self, node: Node, avals: tuple[Aval, ...], value: object, label: str) -> Node:
        node.avals, node.value, node.label = avals, value, label
        self.nodes.append(node)
        return node

    # --- queries ---

    @property
    def inputs(self) -> list[Node]:
        """The inputs, in order."""
        return [n for n in self.nodes if n.kind == "input"]

    @property
    def calls(self) -> list[Node]:
        """The calls, in order."""
        return [n for n in self.nodes if n.kind == "call"]

    def roots(self) -> Iterator[Ref]:
        """Yield the values that a run makes visible: outputs, and values of writes."""
        yield from self.outputs
        for write in self.writes:
            yield write.value

    def users(self) -> dict[Ref, list[Node]]:
        """Map each value to the nodes that read it. Outputs and writes are no nodes, and so not included."""
        users: dict[Ref, list[Node]] = {}
        for node in self.nodes:
            for ref in node.refs:
                users.setdefault(ref, []).append(node)
        return users

    # --- rewriting ---

    def replace(self, changes: Mapping[Ref, Ref]) -> None:
        """Replace each value that is a key of ``changes``, in nodes, outputs and writes.

        A replacement may be a key itself: the last one of such a chain is used.
        """

        def final(ref: NodeArgument) -> NodeArgument:
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

    def erase(self, nodes: set[Node]) -> None:
        """Remove ``nodes``, which nothing may read any more."""
        self.nodes = [n for n in self.nodes if n not in nodes]

    def verify(self) -> None:
        """Raise GraphError unless the graph is consistent.

        Every value that is read must be an output of an earlier node, have the shape and dtype that the op
        infers, and writes must fit their targets.
        """
        earlier: set[Node] = set()
        for position, node in enumerate(self.nodes):
            for ref in node.refs:
                if ref.node not in earlier:
                    raise GraphError(
                        f"node {position} ({node!r}) reads {ref.node!r}, which does not come before it. The"
                        " pass that ran last broke the order."
                    )
                if not _exists(ref):
                    raise GraphError(
                        f"node {position} ({node!r}) reads output {ref.index} of {ref.node!r}, which has no"
                        " such output. The pass that ran last is wrong."
                    )
            if node in earlier:
                raise GraphError(f"node {position} ({node!r}) is in the graph twice.")
            earlier.add(node)
            for index, (right, own) in enumerate(zip(inferred(node), node.avals, strict=False)):
                # A backend's kernel of a composite may return narrow floats where the parts do not.
                parts = isinstance(node.op, Composite) and right.shape == own.shape
                if right != own and not parts:
                    raise GraphError(
                        f"node {position} ({node!r}): output {index} of {node.name} is {right!r}, but the"
                        f" node states {own!r}. The pass that added or changed it has to set avals."
                    )
        for ref in self.roots():
            if ref.node not in earlier:
                raise GraphError(f"an output or write reads {ref.node!r}, which is not in the graph.")
            if not _exists(ref):
                raise GraphError(
                    f"an output or write reads output {ref.index} of {ref.node!r}, which has no such output."
                )
        targets: set[Node] = set()
        for target, value in self.writes:
            if target not in earlier or target.kind != "input":
                raise GraphError(f"a write goes to {target!r}, which is not an input of the graph.")
            if target.avals[0] != value.aval:
                raise GraphError(f"a write of {value.aval!r} does not fit {target.label or target!r}.")
            if target in targets:
                raise GraphError(f"{target.label or target!r} is written twice. List the last write only.")
            targets.add(target)

    # --- text ---

    def names(self) -> dict[Node, str]:
        """Map each node to its printed name, ``%`` and its position."""
        return {node: f"%{i}" for i, node in enumerate(self.nodes)}

    def __str__(self) -> str:
        names = self.names()
        lines = [line for node in self.nodes for line in printed_lines(node, names)]
        outputs = [shown_ref(r, names) for r in self.outputs]
        lines.append(f"return {', '.join(outputs)}")
        lines += [f"{w.target.label or names[w.target]} <- {shown_ref(w.value, names)}" for w in self.writes]
        return "\n".join(lines)

    def __len__(self) -> int:
        return len(self.nodes)


def _exists(ref: Ref) -> bool:
    """Whether the node of ``ref`` has an output of that number."""
    return 0 <= ref.index < max(len(ref.node.avals), ref.node.kind == "scalar")


#: What a shape rule, which trusts its caller, raises for arguments of other types or numbers.
_OF_RULES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


def inferred(node: Node) -> tuple[Aval, ...]:
    """Return the avals that a node must have, as far as they follow from its arguments."""
    if node.kind == "constant":
        return (aval_of(node.value),)
    if node.kind == "scalar" and node.function != "input" and node.function not in FUNCTIONS:
        raise GraphError(f"{node!r}: unknown scalar function {node.function!r}.")
    if node.kind != "call" or node.effect:
        return ()
    attrs = {name: value for name, value in node.attrs.items() if name != "layouts"}
    try:
        avals = node.op.infer(*map(_inferable, node.args), **attrs)
    except NotInferable:
        return ()
    except TenonError as error:
        raise GraphError(f"{node!r}: {node.name} does not take its arguments: {error}") from error
    except _OF_RULES as error:
        reason = f"{type(error).__name__}: {error}"
        raise GraphError(f"{node!r}: {node.name} does not take its arguments: {reason}") from error
    return avals if isinstance(avals, tuple) else (avals,)


def _inferable(value: NodeArgument) -> object:
    """Return an argument as ``infer`` takes it: an aval for a value, any float for a scalar."""
    return value if value.__class__ is not Ref else 1.0 if value.scalar else value.aval


def shown_ref(ref: NodeArgument, names: Mapping[Node, str]) -> str:
    """Return ``"%3"``, ``"%3.1"`` for a second output, or the repr of a value that is not a reference."""
    if ref.__class__ is not Ref:
        return repr(ref)
    return names[ref.node] + (f".{ref.index}" if ref.index else "")


def printed_lines(node: Node, names: Mapping[Node, str]) -> list[str]:
    """Return the printed line of a node, and one for each step of a cluster."""
    avals = ", ".join(map(repr, node.avals)) or "float"
    parts = [shown_ref(a, names) for a in node.args]
    attrs = [f"{k}={v!r}" for k, v in node.attrs.items() if k != "cluster"]
    name = node.function if node.kind == "scalar" else node.name
    has_arguments = node.kind != "input" and node.kind != "constant"
    body = f"{name}({', '.join(parts + attrs)})" if has_arguments else name
    notes = " ".join(t for t in (node.label, node.module, node.where) if t)
    line = f"{names[node]}: {avals} = {body}" + (f"  # {notes}" if notes else "")
    cluster = node.attrs.get("cluster")
    if cluster is None:
        return [line]
    steps = cluster.lines([*parts, *(f".{i}" for i in range(len(cluster.steps)))])
    return [line, *(f"    {step}" for step in steps)]
