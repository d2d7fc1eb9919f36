"""Copy returned values that alias memory which the same run overwrites."""

from __future__ import annotations

from tenon.engine.op import table
from tenon.graph.graph import Graph, Node, Ref, Write


def copy_overwritten(graph: Graph) -> None:
    """Outputs and written values that are (views of) inputs about to be overwritten become copies.

    ``return p`` beside ``p <- p - g`` is the old ``p``; two parameters that change places need a third place.
    """
    written = {w.target for w in graph.writes}
    copies: dict[Ref, Ref] = {}

    def kept(ref: Ref, target: Node | None = None) -> Ref:
        if ref.scalar or ref.node is target or _source(ref.node) not in written:
            return ref
        if ref not in copies:
            node = Node("call", table.clone, (ref,))
            node.avals = (ref.aval,)
            graph.nodes.insert(graph.nodes.index(ref.node) + 1, node)
            copies[ref] = node.out()
        return copies[ref]

    graph.outputs = [kept(r) for r in graph.outputs]
    graph.writes = [Write(w.target, kept(w.value, w.target)) for w in graph.writes]


def _source(node: Node) -> Node:
    """The node whose memory ``node`` may be a view of."""
    while node.kind == "call" and node.op.view and node.args[0].__class__ is Ref:
        node = node.args[0].node
    return node
