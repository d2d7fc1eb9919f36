"""A recorded forward and its backward as two graphs: what a compiled model in an eager training loop needs.

While the forward is recorded, its gradients are computed too, for tangents that are inputs of the graph.
``partition`` then cuts: the first graph returns the outputs and the values that the second one reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tenon.engine.value import Value
from tenon.errors import CaptureError
from tenon.graph.graph import Graph, Node, Ref
from tenon.tensors.autograd.passes import grad as differentiate


@dataclass(slots=True)
class Backward:
    """The backward graph of a differentiable function."""

    graph: Graph
    #: Inputs that receive the gradients of the outputs.
    tangents: list[Node]
    #: Inputs that are memory from outside, as in the forward; with their node there.
    outside: list[tuple[Node, Node]]
    #: Inputs that are values of the forward: the node here, and which output it is there.
    saved: list[tuple[Node, int]]
    #: What is differentiated: leaves and arguments, as ``(position among the arguments or None, tensor)``.
    wanted: list[tuple[int | None, Any]]
    #: For each wanted one the output of this graph, None where no gradient flows.
    results: list[int | None] = field(default_factory=list)
    #: For each wanted one the tangents (by number) that its gradient depends on.
    depends: list[frozenset[int]] = field(default_factory=list)


def differentiate_outputs(recorder: Any, outputs: list[Any], leaves: list[Any]) -> tuple[Any, ...]:
    """Record the gradients of ``outputs``. Returns the number of nodes of the forward, the tangents' nodes,
    what is differentiated and the gradients' values."""
    cut = len(recorder.graph.nodes)
    tangents, nodes = [], []
    for i, out in enumerate(outputs):
        ones = out._backend.raw.new_full(out.raw, shape=out.raw.shape, value=1, dtype=out.raw.dtype)
        tangents.append(Value.make(ones, out._backend))
        nodes.append(recorder.argument(tangents[-1], f"tangent{i}"))
    positions = {id(leaf): i for i, leaf in enumerate(leaves) if isinstance(leaf, Value)}
    wanted = {id(leaf): leaf for leaf in leaves if isinstance(leaf, Value) and leaf._track}
    wanted |= {key: leaf for key, leaf in recorder.leaves.items() if leaf._track}
    listed = list(wanted.values())
    grads = differentiate(outputs, listed, tangents, retain_graph=True, allow_unused=True) if listed else ()
    refs = [None if g is None else recorder.ref(g) for g in grads]
    return cut, nodes, [(positions.get(id(t)), t) for t in listed], refs


def partition(
    graph: Graph,
    cut: int,
    tangents: list[Node],
    wanted: list[tuple[int | None, Any]],
    grads: list[Ref | None],
) -> Backward:
    """Cut ``graph``: it keeps its first ``cut`` nodes and returns the saved values too; the rest comes
    back."""
    first, rest = graph.nodes[:cut], graph.nodes[cut:]
    early = set(first)
    # What was recorded late but does not depend on a tangent belongs to the forward's values.
    needed: set[Node] = set()
    stack = [r.node for r in grads if r is not None]
    while stack:
        node = stack.pop()
        if node not in needed and node not in early:
            needed.add(node)
            stack += [r.node for r in node.refs]
    second = Graph()
    made = Backward(second, [], [], [], wanted)
    changes: dict[Ref, Ref] = {}
    for tangent in tangents:
        made.tangents.append(second.input(tangent.avals[0], None, tangent.label))
        changes[tangent.out()] = made.tangents[-1].out()
    kept = [n for n in rest if n in needed and n not in tangents]
    made.outside = [(n, n) for n in kept if n.kind == "input"]
    for write in graph.writes:
        if write.value.node not in early:
            raise CaptureError("a backward pass writes into memory outside the function.")
    for node in kept:
        for ref in node.refs:
            _bring(ref, graph, early, made, changes)
    for each in grads:
        if each is not None:
            _bring(each, graph, early, made, changes)
    second.nodes += kept
    behind: dict[Node, frozenset[int]] = {t: frozenset((i,)) for i, t in enumerate(tangents)}
    for node in kept:
        behind[node] = frozenset().union(*(behind.get(r.node, frozenset()) for r in node.refs))
    made.depends = [frozenset() if r is None else behind.get(r.node, frozenset()) for r in grads]
    seen: dict[Ref, int] = {}
    for each in grads:
        if each is None:
            made.results.append(None)
            continue
        if each not in seen:
            seen[each] = len(second.outputs)
            second.outputs.append(each)
        made.results.append(seen[each])
    second.replace(changes)
    graph.nodes = first
    second.verify()
    graph.verify()
    return made


def _bring(ref: Ref, graph: Graph, early: set[Node], made: Backward, changes: dict[Ref, Ref]) -> None:
    """Make a value of the forward an input (or a copy of a constant or scalar) of the backward."""
    if ref in changes or ref.node not in early:
        return
    if ref.scalar:
        raise CaptureError("a gradient depends on a number that changes from call to call.")
    node, second = ref.node, made.graph
    if node.kind == "constant":
        changes[ref] = second.constant(node.value, node.label).out()
    elif node.kind == "input" and node.value is not None:
        here = second.input(node.avals[0], node.value, node.label)
        made.outside.append((here, node))
        changes[ref] = here.out()
    else:
        here = second.input(ref.aval, None, f"saved from {node.name}")
        made.saved.append((here, len(graph.outputs)))
        graph.outputs.append(ref)
        changes[ref] = here.out()
