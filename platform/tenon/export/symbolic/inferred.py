"""Find the expressions in the shapes of calls that were added to a graph with free sizes, or changed."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tenon.engine.aval import Aval
from tenon.errors import GraphError
from tenon.export import sizes
from tenon.export.axes import axes_of
from tenon.export.places import Path, put
from tenon.export.sizes import Expression, Sizes
from tenon.export.symbolic.samples import sample_sizes
from tenon.graph.graph import Node, Ref, inferred

if TYPE_CHECKING:
    from tenon.export.captured import CapturedGraph


def infer_sizes(graph: CapturedGraph, nodes: Iterable[Node]) -> None:
    """Note in ``graph.symbolic`` the shapes of ``nodes`` that follow from those of their arguments.

    The shape rules run at several sizes, and integers that differ become expressions. Nodes without a rule,
    or whose rule fails at other sizes, stay as they are: ``CapturedGraph.at`` names them.
    """
    samples = next(sample_sizes(graph.symbols, axes_of(graph)), None)
    if samples is None:
        return
    for node in nodes:
        try:
            shapes = [inferred_at(graph.symbolic, node, sample) for sample in samples]
        except GraphError:
            continue
        if not all(shapes):
            continue
        own = {path: size for path, size in graph.symbolic.get(node, {}).items() if path[0] != "shape"}
        for output, avals in enumerate(zip(*shapes, strict=True)):
            for axis, values in enumerate(zip(*(aval.shape for aval in avals), strict=True)):
                size = sizes.fit(values, samples)
                if isinstance(size, Expression):
                    own[("shape", output, axis)] = size
        if own:
            graph.symbolic[node] = own
        else:
            graph.symbolic.pop(node, None)


def inferred_at(
    symbolic: Mapping[Node, Mapping[Path, Expression]], node: Node, sample: Sizes
) -> tuple[Aval, ...]:
    """Return the avals of a call at given sizes of the symbols, by the expressions of the values it reads.

    () for an op without a shape rule; GraphError if the rule fails.
    """

    def at(each: Node) -> Mapping[Path, int]:
        return {path: size.at(sample) for path, size in symbolic.get(each, {}).items()}

    own = copy.copy(node)
    put(own, {path: value for path, value in at(node).items() if path[0] != "shape"})
    arguments: dict[Node, Node] = {}
    for ref in node.refs:
        if ref.node not in arguments:
            arguments[ref.node] = resized = copy.copy(ref.node)
            put(resized, {path: value for path, value in at(ref.node).items() if path[0] == "shape"})
    own.args = tuple(Ref(arguments[a.node], a.index) if a.__class__ is Ref else a for a in own.args)
    return inferred(own)
