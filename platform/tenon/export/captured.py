"""``CapturedGraph``: the graph of a captured function, with its signature and its guards."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenon.engine.aval import Aval
from tenon.engine.op import Op
from tenon.engine.types import Array, Attrs, Nested
from tenon.errors import ArgumentError, GraphError, ShapeError
from tenon.export.places import Path, expressions, put
from tenon.export.runner import SingleRun
from tenon.export.signature import ScalarInput, Signature
from tenon.export.sizes import Expression, Sizes
from tenon.export.symbolic.inferred import infer_sizes
from tenon.export.symbolic.resolved import Resolved
from tenon.export.symbolic.size_guards import Decisions, SizeGuard, check_guards
from tenon.graph.graph import Graph, Node, NodeArgument, Ref, Write, printed_lines, shown_ref
from tenon.graph.scalars import question_text
from tenon.graph.shape_requests import ShapeRequest


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition by which Python branched during the capture; the graph is valid while its result is the
    same.

    ``question`` is "bool" or "int" for a tensor with one element; for scalars a key of ``QUESTIONS`` in
    ``tenon.graph.scalars``, where ``other`` is the other operand.
    """

    value: Ref
    question: str
    other: NodeArgument
    #: The result in the captured run, which every run must reproduce.
    answer: float
    #: ``file:line`` of the code that made the decision.
    where: str

    def text(self, names: Mapping[Node, str]) -> str:
        """Return the guard as a line of the printed graph."""
        question = question_text(self.question, shown_ref(self.value, names), shown_ref(self.other, names))
        return f"guard {question} is {self.answer!r}" + (f"  # {self.where}" if self.where else "")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that may change: that of the example, the least and the largest (None: no limit)."""

    example: int
    least: int = 0
    most: int | None = None

    def bounded(self, least: int, most: int | None) -> Symbol:
        """Return the symbol with a range."""
        return Symbol(self.example, least, most)

    def check(self, name: str, size: int) -> None:
        """Raise ShapeError unless ``size`` is in range."""
        if size < self.least or (self.most is not None and size > self.most):
            most = " or more" if self.most is None else f" to {self.most}"
            raise ShapeError(f"{name} = {size} is out of range: it may be {self.least}{most}.")


class CapturedGraph(Graph):
    """The graph that ``capture`` returns.

    Inputs that are arguments have ``node.value`` None and the argument's name as ``node.label``; parameters,
    buffers and state have their qualified name, and their Tensor as ``node.value``.
    """

    signature: Signature

    def __init__(self) -> None:
        super().__init__()
        #: The conditions under which it is valid.
        self.guards: list[Guard] = []
        #: The arrays of the arguments that it was captured with, in order; empty if unknown.
        self.example: list[Array] = []
        #: Name -> a size that may change; see ``dynamic.py``. Empty: all sizes are fixed.
        self.symbols: dict[str, Symbol] = {}
        #: Argument -> axis -> the symbol that is its size. Sizes computed from symbols, as ``2*batch``, are
        #: in ``symbolic`` only, see ``axes.py``.
        self.dynamic: dict[str, dict[int, str]] = {}
        #: The integers in nodes that are expressions of symbols. The nodes themselves have those of the
        #: example.
        self.symbolic: dict[Node, dict[Path, Expression]] = {}
        #: The graph at the sizes of earlier runs.
        self.resolved = Resolved()
        #: The comparisons of sizes that may change by which Python branched.
        self.size_guards: list[SizeGuard] = []
        #: During captures at several sizes, what Python decided by sizes; later ``size_guards``.
        self.decisions = Decisions()
        #: During them, the positions of arguments that were computed from sizes.
        self.traced_arguments: dict[Node, tuple[int, ...]] = {}
        #: Of a graph captured ``as_run``, the sizes with which code reshaped, split and sliced, in order.
        self.shape_requests: list[ShapeRequest] = []

    @property
    def arguments(self) -> list[Node]:
        """The inputs that are arguments of the function, in order."""
        known = {node.label: node for node in self.inputs}
        return [known[name] for name in self.signature.inputs]

    @property
    def states(self) -> list[Node]:
        """The inputs that are parameters, buffers, optimizer state or other tensors from outside."""
        names = self.signature.states
        return [node for node in self.inputs if node.label in names]

    @property
    def changed(self) -> list[str]:
        """The names of the arguments that a run changes in place, as ``torch.export`` allows."""
        return [write.target.label for write in self.writes if write.target.value is None]

    @property
    def scalars(self) -> list[tuple[Node, ScalarInput]]:
        """The scalar inputs, with what each run reads."""
        known = {scalar.name: scalar for scalar in self.signature.scalars}
        return [(node, known[node.label]) for node in self.nodes if node.function == "input"]

    def with_sizes(self, node: Node) -> Node:
        """Return ``node`` with expressions of symbols in shapes, arguments and attrs; itself if it has none.

        Its ``avals`` are then printed as ``float32[batch, 4]``.
        """
        changes = self.symbolic.get(node)
        if not changes:
            return node
        sized = copy.copy(node)
        put(sized, changes)
        return sized

    def sized(self) -> CapturedGraph:
        """Return a copy whose nodes are those of ``with_sizes``; the graph itself if no size may change."""
        if not self.symbols:
            return self
        result = self.copy()
        for node, own in zip(self.nodes, result.nodes, strict=True):
            put(own, self.symbolic.get(node, {}))
        return result

    def call(self, op: Op, args: tuple[NodeArgument, ...], attrs: Attrs, avals: tuple[Aval, ...]) -> Node:
        """Add a call of ``op`` with outputs of shapes and dtypes ``avals``; see ``infer_sizes``.

        Integers may be expressions of symbols, as those of nodes that ``with_sizes`` returns.
        """
        node = super().call(op, args, attrs, avals)
        if self.symbols:
            given = dict(expressions(node))
            if given:
                self.symbolic[node] = given
                examples = {name: symbol.example for name, symbol in self.symbols.items()}
                put(node, {path: size.at(examples) for path, size in given.items()})
            infer_sizes(self, [node])
        return node

    def infer_sizes(self) -> None:
        """Find the shapes of all calls that depend on sizes that may change, after an edit of the graph.

        ``call`` does so for its node. In arguments and attrs, as ``shape`` of a reshape, integers that follow
        from sizes have to be expressions already, in ``symbolic`` or in what ``call`` is given.
        """
        infer_sizes(self, self.calls)

    def at(self, **sizes: int) -> CapturedGraph:
        """Return a copy of the graph for these sizes of its symbols: all its sizes are plain integers.

        ShapeError for a size out of range, or for which a guard fails; ArgumentError for an unknown symbol.
        """
        for name in sizes:
            if name not in self.symbols:
                raise ArgumentError(
                    f"the graph has no size {name!r}; those that may change are {', '.join(self.symbols)}."
                )
        symbol_sizes = {name: each.example for name, each in self.symbols.items()} | sizes
        check_guards(self.size_guards, symbol_sizes)
        for name, size in sizes.items():
            self.symbols[name].check(name, size)
        result = self.copy()
        result.symbols, result.dynamic, result.symbolic, result.size_guards = {}, {}, {}, []
        for node, own in zip(self.nodes, result.nodes, strict=True):
            put(own, {path: size.at(symbol_sizes) for path, size in self.symbolic.get(node, {}).items()})
        try:
            result.verify()
        except GraphError as error:
            assignments = ", ".join(f"{name} = {size}" for name, size in symbol_sizes.items())
            raise ShapeError(
                f"the graph does not hold for {assignments}: {error} After an edit of nodes, "
                "graph.infer_sizes() finds the shapes that depend on these sizes; expressions in arguments "
                "and attrs belong in graph.symbolic."
            ) from error
        return result

    def permits(self, sizes: Sizes) -> bool:
        """Whether the guards hold at these sizes of the symbols."""
        return all(guard.holds(sizes) for guard in self.size_guards)

    def example_arguments(self) -> tuple[Nested, ...]:
        """Return the positional arguments that it was captured with; ArgumentError if they are unknown."""
        if len(self.example) != len(self.signature.inputs):
            raise ArgumentError("the graph has no example: pass the arguments of the test runs as calls=.")
        args, kwargs = self.signature.arguments_of(self.example)
        if kwargs:
            raise ArgumentError(f"the graph takes {', '.join(kwargs)} by name; bundles hold positional ones.")
        return args

    def run(self, *args: Nested, **kwargs: Nested) -> Nested:
        """Run the graph once, op by op, on the current parameters and state, without changing them.

        It is the reference for targets. ``tenon.export.Runner`` repeats training steps.
        """
        return SingleRun(self)(*args, **kwargs)

    def roots(self) -> Iterator[Ref]:
        """Yield the values that a run makes visible: those of guards too."""
        yield from super().roots()
        for guard in self.guards:
            yield guard.value
            if guard.other.__class__ is Ref:
                yield guard.other
        yield from self.decisions.refs()

    def replace(self, changes: Mapping[Ref, Ref]) -> None:
        """Replace each value that is a key of ``changes``, in guards too."""
        super().replace(changes)

        def final(ref: NodeArgument) -> Any:  # an argument of any type
            while ref.__class__ is Ref and ref in changes:
                ref = changes[ref]
            return ref

        self.guards = [
            Guard(final(g.value), g.question, final(g.other), g.answer, g.where) for g in self.guards
        ]
        self.decisions = self.decisions.moved(final)

    def copy(self) -> CapturedGraph:
        """Return a copy with nodes of its own; parameters, constants and signature are shared."""
        result = CapturedGraph()
        result.signature, result.example = self.signature, self.example
        result.symbols, result.dynamic = self.symbols, self.dynamic
        nodes: dict[Node, Node] = {}

        def moved(value: NodeArgument) -> Any:  # an argument of any type
            return Ref(nodes[value.node], value.index) if value.__class__ is Ref else value

        for node in self.nodes:
            nodes[node] = own = copy.copy(node)
            own.args, own.attrs = tuple(map(moved, node.args)), dict(node.attrs)
            result.nodes.append(own)
        result.symbolic = {nodes[n]: dict(paths) for n, paths in self.symbolic.items() if n in nodes}
        result.outputs = [moved(ref) for ref in self.outputs]
        result.writes = [Write(nodes[w.target], moved(w.value)) for w in self.writes]
        result.guards = [
            Guard(moved(g.value), g.question, moved(g.other), g.answer, g.where) for g in self.guards
        ]
        result.size_guards = list(self.size_guards)
        result.decisions = self.decisions.moved(moved, nodes)
        result.traced_arguments = {nodes[n]: each for n, each in self.traced_arguments.items() if n in nodes}
        return result

    def __str__(self) -> str:
        names = self.names()
        sized = [self.with_sizes(node) for node in self.nodes]
        names |= {node: names[own] for node, own in zip(sized, self.nodes, strict=True)}
        lines = [line for node in sized for line in printed_lines(node, names)]
        lines.append(f"return {', '.join(shown_ref(r, names) for r in self.outputs)}")
        lines += [f"{w.target.label} <- {shown_ref(w.value, names)}" for w in self.writes]
        return "\n".join(
            [*lines, *(g.text(names) for g in self.guards), *(g.text() for g in self.size_guards)]
        )
