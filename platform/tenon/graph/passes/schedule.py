"""Reorder calls to lower the peak of memory that is live at one time.

What counts is the most bytes alive at once (the lower bound of any arena). Two orders are tried against the
one that is there: each time the call that frees most beyond what it makes; and every call as late as its
readers allow, so that a value is not made long before it is needed. The best of the three stays. Effects keep
their order, as always.
"""

from __future__ import annotations

import heapq

from tenon.graph.arena import aligned
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.memory_plan import replaceable

#: Peaks below this many bytes are left alone, as they fit into the caches.
LEAST = 1 << 16


def schedule(graph: Graph) -> None:
    """Reorder the calls of ``graph`` if that lowers its peak."""
    lives = _Lives(graph)
    best, least = graph.nodes, lives.peak(graph.nodes)
    for order in (_greedy(graph, lives), _late(graph)):
        peak = lives.peak(order)
        if peak <= least - LEAST:
            best, least = order, peak
    graph.nodes = best


class _Lives:
    """Which memory the values of a graph need, views counted with what they show, and how long."""

    def __init__(self, graph: Graph) -> None:
        #: The value whose memory each one uses.
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
        #: Memory that is nobody's after the last reader; the rest belongs to others, or is returned.
        kept = {self.base[r] for r in graph.roots() if r in self.base}
        self.bytes = {
            base: aligned(base.aval.nbytes)
            for base in set(self.base.values())
            if base.node.kind == "call" and base not in kept
        }

    def made(self, node: Node) -> int:
        """Bytes that a call begins to use."""
        own = (node.out(i) for i in range(len(node.avals)))
        return sum(self.bytes.get(ref, 0) for ref in own if self.base[ref] == ref)

    def read(self, node: Node) -> set[Ref]:
        """What a call reads and somebody frees in the end."""
        return {self.base[r] for r in node.refs if self.base.get(r) in self.bytes}

    def peak(self, order: list[Node]) -> int:
        """The most bytes alive at one time."""
        left = {base: len(self.users.get(base, ())) for base in self.bytes}
        now = most = 0
        for node in order:
            made, freed = self.made(node), 0
            for base in self.read(node):
                left[base] -= 1
                freed += self.bytes[base] if not left[base] else 0
            # A result may take the place of an operand that dies with it.
            most = max(most, now + made - (min(made, freed) if made and replaceable(node) else 0))
            now += made - freed
        return most


def _waits(graph: Graph) -> dict[Node, list[Node]]:
    """What has to run before each node, or does now and has to: readers of memory that it can write into as
    long as nobody reads that later."""
    found: dict[Node, list[Node]] = {}
    last = None
    targets: dict[Node, list[Ref]] = {}
    for write in graph.writes:
        targets.setdefault(write.value.node, []).append(write.target.out())
    readers: dict[Ref, list[Node]] = {}
    for node in graph.nodes:
        before = [reader for target in targets.get(node, ()) for reader in readers.get(target, ())]
        found[node] = list(dict.fromkeys([*(r.node for r in node.refs), *before]))
        for ref in node.refs:
            readers.setdefault(ref, []).append(node)
        if node.effect:
            if last is not None and last not in found[node]:
                found[node].append(last)
            last = node
    return found


def _greedy(graph: Graph, lives: _Lives) -> list[Node]:
    """Of the calls that can run, first the one after which least is alive; ties as they were."""
    waits = _waits(graph)
    after: dict[Node, list[Node]] = {}
    for node, before in waits.items():
        for each in before:
            after.setdefault(each, []).append(node)
    open_count = {node: len(before) for node, before in waits.items()}
    left = {base: len(lives.users.get(base, ())) for base in lives.bytes}
    place = {node: i for i, node in enumerate(graph.nodes)}

    def cost(node: Node) -> int:
        return lives.made(node) - sum(lives.bytes[b] for b in lives.read(node) if left[b] == 1)

    ready = [(cost(n), place[n], n) for n in graph.nodes if not open_count[n]]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        was, _, node = heapq.heappop(ready)
        if (now := cost(node)) != was:  # a reader of the same value has run since
            heapq.heappush(ready, (now, place[node], node))
            continue
        order.append(node)
        for base in lives.read(node):
            left[base] -= 1
        for each in after.get(node, ()):
            open_count[each] -= 1
            if not open_count[each]:
                heapq.heappush(ready, (cost(each), place[each], each))
    return order


def _late(graph: Graph) -> list[Node]:
    """Every node just before the first one that reads it, in the order of those."""
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
