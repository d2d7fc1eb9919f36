"""Sort the nodes of a graph topologically."""

from __future__ import annotations

from tenon.graph.graph import Graph, Node


def sort_topologically(graph: Graph) -> None:
    """Move each node after those that it reads; other nodes, and effects, keep their order."""
    before: dict[Node, Node] = {}
    last = None
    for node in graph.nodes:
        if node.effect:
            if last is not None:
                before[node] = last
            last = node
    done: set[Node] = set()
    nodes: list[Node] = []
    for start in graph.nodes:
        stack = [start]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            waits = [r.node for r in node.refs if r.node not in done]
            if node in before and before[node] not in done:
                waits.append(before[node])
            if waits:
                stack.extend(reversed(waits))
                continue
            stack.pop()
            done.add(node)
            nodes.append(node)
    graph.nodes = nodes
