"""Simplify a captured graph without fusing anything."""

from __future__ import annotations

from tenon.export.captured import CapturedGraph
from tenon.graph.graph import Node
from tenon.graph.passes.canonicalise import canonicalise
from tenon.graph.passes.common_subexpr import common_subexpr


def simplify(graph: CapturedGraph) -> None:
    """Remove unused nodes, copies, casts and moves without effect, and repeated calls."""
    drop_unread(graph)
    canonicalise(graph)
    common_subexpr(graph)
    drop_unread(graph)


def drop_unread(graph: CapturedGraph) -> None:
    """Remove nodes that no output, write, guard or effect needs; arguments stay."""
    needed: set[Node] = {r.node for r in graph.roots()} | {w.target for w in graph.writes}
    for node in reversed(graph.nodes):
        if node.effect or (node.kind == "input" and node.value is None):
            needed.add(node)
        if node in needed:
            needed.update(r.node for r in node.refs)
    graph.erase({node for node in graph.nodes if node not in needed})
