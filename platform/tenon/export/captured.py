"""``CapturedGraph``: the graph of a captured function, with its signature and the guards it stands on."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenon.engine.types import Array, Nested
from tenon.errors import ArgumentError
from tenon.export.runner import Runner
from tenon.export.signature import ScalarInput, Signature, TensorArgument
from tenon.graph.graph import Graph, Node, NodeArgument, Ref, Write, shown_ref
from tenon.graph.scalars import question_text
from tenon.tensors.pytree import tree_unflatten


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition under which the graph computes what the function computes: Python decided something by it.

    ``question`` is "bool" or "int" for a tensor with one element; for scalars a key of ``QUESTIONS`` in
    ``tenon.graph.scalars``, where ``other`` is the other operand.
    """

    value: Ref
    question: str
    other: NodeArgument
    #: The answer of the captured run, which every run must give.
    answer: float
    #: ``file:line`` of the code that asked.
    where: str

    def text(self, names: Mapping[Node, str]) -> str:
        """Return the guard as a line of the printed graph."""
        asked = question_text(self.question, shown_ref(self.value, names), shown_ref(self.other, names))
        return f"guard {asked} is {self.answer!r}" + (f"  # {self.where}" if self.where else "")


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
    def scalars(self) -> list[tuple[Node, ScalarInput]]:
        """The scalar inputs, with what each run reads."""
        known = {scalar.name: scalar for scalar in self.signature.scalars}
        return [(node, known[node.label]) for node in self.nodes if node.function == "input"]

    def example_arguments(self) -> tuple[Nested, ...]:
        """Return the positional arguments that it was captured with; ArgumentError if they are unknown."""
        if len(self.example) != len(self.signature.inputs):
            raise ArgumentError("the graph has no example: pass the arguments of the test runs as calls=.")
        tensors = iter(self.example)
        leaves = [
            next(tensors) if isinstance(each, TensorArgument) else each for each in self.signature.arguments
        ]
        args, kwargs = tree_unflatten(leaves, self.signature.in_spec)
        if kwargs:
            raise ArgumentError(f"the graph takes {', '.join(kwargs)} by name; bundles hold positional ones.")
        return tuple(args)

    def run(self, *args: Nested, **kwargs: Nested) -> Nested:
        """Run the graph once, op by op, on the present parameters and state, which stay as they are.

        It is the reference for targets. ``tenon.export.Runner`` repeats training steps.
        """
        return Runner(self)(*args, **kwargs)

    def roots(self) -> Iterator[Ref]:
        """Yield the values that a run makes visible: those of guards too."""
        yield from super().roots()
        for guard in self.guards:
            yield guard.value
            if guard.other.__class__ is Ref:
                yield guard.other

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

    def copy(self) -> CapturedGraph:
        """Return a copy with nodes of its own; parameters, constants and signature are shared."""
        result = CapturedGraph()
        result.signature, result.example = self.signature, self.example
        nodes: dict[Node, Node] = {}

        def moved(value: NodeArgument) -> Any:  # an argument of any type
            return Ref(nodes[value.node], value.index) if value.__class__ is Ref else value

        for node in self.nodes:
            nodes[node] = own = copy.copy(node)
            own.args, own.attrs = tuple(map(moved, node.args)), dict(node.attrs)
            result.nodes.append(own)
        result.outputs = [moved(ref) for ref in self.outputs]
        result.writes = [Write(nodes[w.target], moved(w.value)) for w in self.writes]
        result.guards = [
            Guard(moved(g.value), g.question, moved(g.other), g.answer, g.where) for g in self.guards
        ]
        return result

    def __str__(self) -> str:
        names = self.names()
        return "\n".join([super().__str__(), *(guard.text(names) for guard in self.guards)])
