"""Split a recorded forward and backward into two graphs, for a compiled model in an eager training loop.

After the forward the gradients of its outputs are recorded into the same graph, for tangents that are inputs.
``partition`` splits it: the first graph also returns the values that the second one reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tenon.engine.value import Value
from tenon.errors import CaptureError, UnsupportedError
from tenon.graph.graph import Graph, Node, Ref
from tenon.tensors.autograd.passes import grad as differentiate
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.graph.recorder import Recorder

#: A leaf or argument to differentiate with respect to: its index among the arguments or None, and the tensor.
Target: TypeAlias = tuple[int | None, Tensor]


@dataclass(slots=True)
class Backward:
    """The backward graph of a differentiable function."""

    graph: Graph
    #: Inputs for the gradients of the forward's outputs.
    tangents: list[Node]
    #: Inputs that are external memory, each with its node in the forward.
    outside: list[tuple[Node, Node]]
    #: Inputs that are values of the forward, each with the index of its output there.
    saved: list[tuple[Node, int]]
    #: The tensors whose gradients the graph computes.
    targets: list[Target]
    #: For each of ``targets`` the index of the output of this graph; None where no gradient flows.
    results: list[int | None] = field(default_factory=list)
    #: For each of ``targets`` the indices of the tangents that its gradient depends on.
    depends: list[frozenset[int]] = field(default_factory=list)


def differentiate_outputs(
    recorder: Recorder, outputs: list[Tensor], leaves: Sequence[object]
) -> tuple[int, list[Node], list[Target], list[Ref | None]]:
    """Record the gradients of ``outputs``, for ``partition``.

    Returns the number of nodes of the forward, the nodes of the tangents, the tensors to differentiate with
    respect to, and their gradients.
    """
    cut = len(recorder.graph.nodes)
    tangents, nodes = [], []
    for i, out in enumerate(outputs):
        ones = out._backend.raw.new_full(out.raw, shape=out.raw.shape, value=1, dtype=out.raw.dtype)
        tangents.append(Value.make(ones, out._backend))
        nodes.append(recorder.argument(tangents[-1], f"tangent{i}"))
    positions = {id(leaf): i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
    targets = {id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf._track}
    targets |= {key: leaf for key, leaf in recorder.leaves.items() if leaf._track}
    listed = list(targets.values())
    grads: tuple[Tensor | None, ...] = ()
    try:
        if listed:
            grads = differentiate(outputs, listed, tangents, retain_graph=True, allow_unused=True)
    except UnsupportedError as error:
        raise CaptureError(f"its gradient cannot be computed: {error}") from error
    refs = [None if g is None else recorder.ref(g) for g in grads]
    return cut, nodes, [(positions.get(id(t)), t) for t in listed], refs


def partition(
    graph: Graph,
    cut: int,
    tangents: list[Node],
    targets: list[Target],
    grads: list[Ref | None],
) -> Backward:
    """Split ``graph`` after ``cut`` nodes: it keeps the forward; the backward is returned.

    The values that the backward reads are appended to the outputs of ``graph``.
    """
    first, rest = graph.nodes[:cut], graph.nodes[cut:]
    early = set(first)
    needed: set[Node] = set()
    stack = [r.node for r in grads if r is not None]
    while stack:
        node = stack.pop()
        if node not in needed and node not in early:
            needed.add(node)
            stack += [r.node for r in node.refs]
    second = Graph()
    backward = Backward(second, [], [], [], targets)
    changes: dict[Ref, Ref] = {}
    for tangent in tangents:
        backward.tangents.append(second.input(tangent.avals[0], None, tangent.label))
        changes[tangent.out()] = backward.tangents[-1].out()
    moved = [n for n in rest if n in needed and n not in tangents]
    backward.outside = [(n, n) for n in moved if n.kind == "input"]
    for write in graph.writes:
        if write.value.node not in early:
            raise CaptureError("a backward pass writes into memory outside the function.")
    for node in moved:
        for ref in node.refs:
            _provide(ref, graph, early, backward, changes)
    for each in grads:
        if each is not None:
            _provide(each, graph, early, backward, changes)
    second.nodes += moved
    tangents_of: dict[Node, frozenset[int]] = {t: frozenset((i,)) for i, t in enumerate(tangents)}
    for node in moved:
        tangents_of[node] = frozenset().union(*(tangents_of.get(r.node, frozenset()) for r in node.refs))
    backward.depends = [frozenset() if r is None else tangents_of.get(r.node, frozenset()) for r in grads]
    seen: dict[Ref, int] = {}
    for each in grads:
        if each is None:
            backward.results.append(None)
            continue
        if each not in seen:
            seen[each] = len(second.outputs)
            second.outputs.append(each)
        backward.results.append(seen[each])
    second.replace(changes)
    graph.nodes = first
    second.verify()
    graph.verify()
    return backward


def _provide(ref: Ref, graph: Graph, early: set[Node], backward: Backward, changes: dict[Ref, Ref]) -> None:
    """Make a value of the forward available in the backward: as an input, or as a copy of a constant."""
    if ref in changes or ref.node not in early:
        return
    if ref.scalar:
        raise CaptureError("a gradient depends on a number that changes from call to call.")
    node, second = ref.node, backward.graph
    if node.kind == "constant":
        changes[ref] = second.constant(node.value, node.label).out()
    elif node.kind == "input" and node.value is not None:
        here = second.input(node.avals[0], node.value, node.label)
        backward.outside.append((here, node))
        changes[ref] = here.out()
    else:
        here = second.input(ref.aval, None, f"saved from {node.name}")
        backward.saved.append((here, len(graph.outputs)))
        graph.outputs.append(ref)
        changes[ref] = here.out()
