"""Where a graph inserts new nodes, and its list of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.fx.graph import Graph
    from tenon.fx.node import Node


class InsertPoint:
    """Sets a graph's insert point; leaving the block restores the previous one."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph, self._before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        self.graph._insert = self._before


class NodeList:
    """The nodes of a graph in order, forwards or backwards. Nodes may be erased and inserted during
    iteration."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root, direction = self.graph._root, self.direction
        node: Node = getattr(root, direction)
        while node is not root:
            following: Node = getattr(node, direction)
            if not node._erased:
                yield node
                following = getattr(node, direction) if not node._erased else following
            node = following

    def __reversed__(self) -> NodeList:
        return NodeList(self.graph, "_prev" if self.direction == "_next" else "_next")
