"""Dead code elimination."""

from __future__ import annotations

from tenon.graph.graph import Graph, Node


def dead_code(graph: Graph) -> None:
    """Remove nodes that no output, write or effect needs; random draws stay, as later ones depend on them."""
    needed: set[Node] = {r.node for r in graph.roots()} | {w.target for w in graph.writes}
    for node in reversed(graph.nodes):
        if node.effect:
            needed.add(node)
        if node in needed:
            needed.update(r.node for r in node.refs)
    graph.erase({n for n in graph.nodes if n not in needed})
