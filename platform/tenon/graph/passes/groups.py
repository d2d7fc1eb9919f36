"""A partition of a graph's calls into groups that can run as one, without ever closing a circle."""

from __future__ import annotations

from tenon.graph.graph import Graph, Node


class Groups:
    """Every node is in a group of its own at first; ``join`` merges two where ``can_join`` allows it.

    ``needs[g]`` is a bit set of the groups that must run before ``g``, directly or not.
    """

    def __init__(self, graph: Graph) -> None:
        self.of: dict[Node, int] = {node: i for i, node in enumerate(graph.nodes)}
        self.members: dict[int, list[Node]] = {i: [node] for i, node in enumerate(graph.nodes)}
        self.direct: dict[int, int] = {}
        self.needs: dict[int, int] = {}
        last = None
        for i, node in enumerate(graph.nodes):
            bits = 0
            for ref in node.refs:
                bits |= 1 << self.of[ref.node]
            if node.effect:
                if last is not None:
                    bits |= 1 << self.of[last]
                last = node
            self.direct[i] = bits
            every = bits
            for j in _ones(bits):
                every |= self.needs[j]
            self.needs[i] = every

    def can_join(self, a: int, b: int) -> bool:
        """Whether no third group has to run between them."""
        return not (self._through(a, b) or self._through(b, a))

    def _through(self, first: int, second: int) -> bool:
        """Whether ``second`` needs a third group that needs ``first``."""
        if not self.needs[second] >> first & 1:
            return False
        return any(
            self.needs[g] >> first & 1 for g in _ones(self.direct[second] & ~(1 << first)) if g != second
        )

    def join(self, a: int, b: int) -> int:
        """Merge both; the group's number afterwards, which is ``a``."""
        gone = 1 << b
        own = (1 << a) | gone
        self.members[a] += self.members.pop(b)
        for node in self.members[a]:
            self.of[node] = a
        direct = (self.direct[a] | self.direct.pop(b)) & ~own
        every = (self.needs[a] | self.needs.pop(b)) & ~own
        for g, bits in self.direct.items():
            if bits & gone:
                self.direct[g] = bits & ~gone | 1 << a
        for g, bits in self.needs.items():
            if bits & own:
                self.needs[g] = bits & ~gone | every | 1 << a
        self.direct[a], self.needs[a] = direct, every
        return a


def _ones(bits: int) -> list[int]:
    """Positions of the bits that are set."""
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found
