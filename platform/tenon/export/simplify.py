"""Simplify a captured graph without fusing anything."""

from __future__ import annotations

from tenon.export.captured import CapturedGraph
from tenon.export.places import expressions, put
from tenon.graph.graph import Node
from tenon.graph.passes.canonicalise import canonicalise
from tenon.graph.passes.common_subexpr import common_subexpr


def simplify(graph: CapturedGraph) -> None:
    """Remove unused nodes, copies, casts and moves without effect, and repeated calls.

    Sizes that may change are equal if their expressions are: calls that agree at the example's sizes only
    stay two. A graph at given sizes of another, in which calls that depend on them are keys of ``symbolic``
    without expressions, only loses what is unused.
    """
    drop_unread(graph)
    if graph.symbolic and not graph.symbols:
        return
    for node, sizes in graph.symbolic.items():
        put(node, sizes)
    canonicalise(graph)
    common_subexpr(graph)
    example = {name: symbol.example for name, symbol in graph.symbols.items()}
    graph.symbolic = {node: sizes for node in graph.nodes if (sizes := dict(expressions(node)))}
    for node, sizes in graph.symbolic.items():
        put(node, {path: size.at(example) for path, size in sizes.items()})
    drop_unread(graph)
    present = {*graph.nodes}
    graph.symbolic = {node: sizes for node, sizes in graph.symbolic.items() if node in present}


def drop_unread(graph: CapturedGraph) -> None:
    """Remove nodes that no output, write, guard or effect needs; arguments stay."""
    needed: set[Node] = {r.node for r in graph.roots()} | {w.target for w in graph.writes}
    for node in reversed(graph.nodes):
        if node.effect or (node.kind == "input" and node.value is None):
            needed.add(node)
        if node in needed:
            needed.update(r.node for r in node.refs)
    graph.erase({node for node in graph.nodes if node not in needed})
