"""Copy returned values that alias memory that the same run overwrites."""

from __future__ import annotations

from tenon.engine.op import table
from tenon.graph.graph import Graph, Node, Ref, Write


def copy_overwritten(graph: Graph) -> None:
    """Copy outputs and written values that alias an input that a write overwrites.

    ``return p`` with the write ``p <- p - g`` returns the old ``p``; swapping two parameters needs a copy
    of one.
    """
    written = {w.target for w in graph.writes}
    copies: dict[Ref, Ref] = {}

    def copied(ref: Ref, target: Node | None = None) -> Ref:
        if ref.scalar or ref.node is target or _source(ref.node) not in written:
            return ref
        if ref not in copies:
            node = Node("call", table.clone, (ref,))
            node.avals = (ref.aval,)
            graph.nodes.insert(graph.nodes.index(ref.node) + 1, node)
            copies[ref] = node.out()
        return copies[ref]

    graph.outputs = [copied(r) for r in graph.outputs]
    graph.writes = [Write(w.target, copied(w.value, w.target)) for w in graph.writes]


def _source(node: Node) -> Node:
    """Return the node that owns the memory of ``node``, which may be a view."""
    while node.kind == "call" and node.op.view and node.args[0].__class__ is Ref:
        node = node.args[0].node
    return node
