"""Reorder calls to lower the peak memory.

The peak is the largest number of bytes alive at one time, the lower bound of any arena. Two orders are
compared with the present one: greedily, next the call that frees most relative to what it allocates; and
every call as late as its readers allow, so that values are not computed long before they are needed. The
best of the three is used. Effects keep their order.
"""

from __future__ import annotations

import heapq

from tenon.graph.arena import aligned
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.memory_plan import replaceable

#: The minimum number of bytes that a new order must save; fewer fit into the caches anyway.
LEAST = 1 << 16


def schedule(graph: Graph) -> None:
    """Reorder the calls of ``graph`` if that lowers its peak."""
    lifetimes = _Lifetimes(graph)
    best, least = graph.nodes, lifetimes.peak(graph.nodes)
    for order in (_greedy(graph, lifetimes), _late(graph)):
        peak = lifetimes.peak(order)
        if peak <= least - LEAST:
            best, least = order, peak
    graph.nodes = best


class _Lifetimes:
    """The memory of a graph's values, views counted as part of their base, and its readers."""

    def __init__(self, graph: Graph) -> None:
        #: The value that owns the memory of each value.
        self.base: dict[Ref, Ref] = {}
        self.users: dict[Ref, set[Node]] = {}
        for node in graph.nodes:
            for index in range(len(node.avals)):
                view = node.kind == "call" and node.op.view and node.args[0].__class__ is Ref
                source = node.args[0] if view else node.out(index)
                self.base[node.out(index)] = self.base.get(source, source)
            for ref in node.refs:
                if ref in self.base:
                    self.users.setdefault(self.base[ref], set()).add(node)
        # Only memory that is freed after its last reader counts: not external memory and outputs.
        outputs = {self.base[r] for r in graph.roots() if r in self.base}
        #: The size of each value that is freed after its last reader.
        self.bytes = {
            base: aligned(base.aval.nbytes)
            for base in set(self.base.values())
            if base.node.kind == "call" and base not in outputs
        }

    def allocated(self, node: Node) -> int:
        """Return the bytes that a call allocates."""
        own = (node.out(i) for i in range(len(node.avals)))
        return sum(self.bytes.get(ref, 0) for ref in own if self.base[ref] == ref)

    def read(self, node: Node) -> set[Ref]:
        """Return the values that a call reads and that are freed after their last reader."""
        return {self.base[r] for r in node.refs if self.base.get(r) in self.bytes}

    def peak(self, order: list[Node]) -> int:
        """Return the largest number of bytes alive at one time."""
        left = {base: len(self.users.get(base, ())) for base in self.bytes}
        now = most = 0
        for node in order:
            allocated, freed = self.allocated(node), 0
            for base in self.read(node):
                left[base] -= 1
                freed += self.bytes[base] if not left[base] else 0
            # A result may overwrite an operand that is freed after this call.
            reused = min(allocated, freed) if allocated and replaceable(node) else 0
            most = max(most, now + allocated - reused)
            now += allocated - freed
        return most


def _waits(graph: Graph) -> dict[Node, list[Node]]:
    """Map each node to those that must run before it.

    Besides those that it reads, these are readers of memory that it can overwrite if nothing reads it later.
    """
    waits: dict[Node, list[Node]] = {}
    last = None
    targets: dict[Node, list[Ref]] = {}
    for write in graph.writes:
        targets.setdefault(write.value.node, []).append(write.target.out())
    readers: dict[Ref, list[Node]] = {}
    for node in graph.nodes:
        before = [reader for target in targets.get(node, ()) for reader in readers.get(target, ())]
        waits[node] = list(dict.fromkeys([*(r.node for r in node.refs), *before]))
        for ref in node.refs:
            readers.setdefault(ref, []).append(node)
        if node.effect:
            if last is not None and last not in waits[node]:
                waits[node].append(last)
            last = node
    return waits


def _greedy(graph: Graph, lifetimes: _Lifetimes) -> list[Node]:
    """Return an order in which next is the ready call that leaves least memory alive; ties keep their
    order."""
    waits = _waits(graph)
    after: dict[Node, list[Node]] = {}
    for node, before in waits.items():
        for each in before:
            after.setdefault(each, []).append(node)
    open_count = {node: len(before) for node, before in waits.items()}
    left = {base: len(lifetimes.users.get(base, ())) for base in lifetimes.bytes}
    position = {node: i for i, node in enumerate(graph.nodes)}

    def cost(node: Node) -> int:
        return lifetimes.allocated(node) - sum(
            lifetimes.bytes[b] for b in lifetimes.read(node) if left[b] == 1
        )

    ready = [(cost(n), position[n], n) for n in graph.nodes if not open_count[n]]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        was, _, node = heapq.heappop(ready)
        if (now := cost(node)) != was:  # a reader of the same value has run since
            heapq.heappush(ready, (now, position[node], node))
            continue
        order.append(node)
        for base in lifetimes.read(node):
            left[base] -= 1
        for each in after.get(node, ()):
            open_count[each] -= 1
            if not open_count[each]:
                heapq.heappush(ready, (cost(each), position[each], each))
    return order


def _late(graph: Graph) -> list[Node]:
    """Return an order in which each node comes just before its first reader."""
    waits = _waits(graph)
    done: set[Node] = set()
    order: list[Node] = []
    read = {each for before in waits.values() for each in before}
    for start in graph.nodes:
        if start in read:
            continue
        stack = [start]
        while stack:
            open_ones = [n for n in waits[stack[-1]] if n not in done]
            if open_ones:
                stack.append(open_ones[-1])
            else:
                node = stack.pop()
                done.add(node)
                order.append(node)
    return order
