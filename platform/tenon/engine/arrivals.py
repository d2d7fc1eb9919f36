"""Complete gradients for leaves with hooks: all contributions of a backward pass are summed first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon.engine.tape import Node
from tenon.engine.types import Gradient
from tenon.engine.value import Value

if TYPE_CHECKING:
    from tenon.engine.sweep import Sweep

_LEAF = -1


class Arrivals:
    """Partial gradients of leaves with hooks: hooks run once, on the sum, as soon as it is complete.

    This requires the number of unvisited edges to each leaf, so the first such leaf costs one traversal of
    the remaining graph; passes without hooks never pay for it.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.waiting: dict[int, list[Any]] = {}  # id of leaf -> [leaf, partial sum, fresh]
        self.open: dict[int, int] = {}  # id of leaf -> edges from nodes not yet visited
        self.counted: set[int] | None = None  # ids of nodes whose edges are in ``open``
        self.alive: list[Node] = []  # keeps counted nodes alive, and with them their ids

    def _count(self) -> None:
        self.counted = counted = set()
        stack = list(self.sweep.pending)
        while stack:
            node = stack.pop()
            if id(node) in counted:
                continue
            counted.add(id(node))
            self.alive.append(node)
            for edge in node.edges:
                if edge is None:
                    continue
                if edge[1] == _LEAF:
                    self.open[id(edge[0])] = self.open.get(id(edge[0]), 0) + 1
                else:
                    stack.append(edge[0])

    def arrive(self, leaf: Value, grad: Gradient, fresh: bool) -> None:
        """Add ``grad`` to the partial sum of ``leaf``; ``fresh`` if nothing else refers to the array."""
        entry = self.waiting.get(id(leaf))
        if entry is None:
            self.waiting[id(leaf)] = [leaf, grad, fresh]
        else:
            entry[1:] = entry[1] + grad, True

    def visited(self, node: Node) -> None:
        """Deliver to the leaves whose last open edge came from ``node``, which has sent its gradients."""
        if self.counted is None:  # this node's own edges are done, all others lie behind what is pending
            self._count()
            known = False
        else:
            known = id(node) in self.counted
        for edge in node.edges:
            if edge is not None and edge[1] == _LEAF:
                key = id(edge[0])
                if known:
                    self.open[key] -= 1
                if not self.open.get(key) and key in self.waiting:
                    self.sweep.deliver(*self.waiting.pop(key))

    def rest(self) -> None:
        """Deliver the remaining sums, of leaves with an edge along which no gradient flowed."""
        while self.waiting:
            self.sweep.deliver(*self.waiting.pop(next(iter(self.waiting))))
