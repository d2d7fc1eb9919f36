"""``Groups``: a partition of a graph's calls into groups that can be fused without creating cycles."""

from __future__ import annotations

from tenon.graph.graph import Graph, Node


class Groups:
    """Initially every node is a group, except that the parts of one call, which are consecutive, form one.

    ``join`` merges two groups if ``can_join``. The sets are bit sets of node numbers: ``own[g]`` has the
    nodes of a group, ``direct[g]`` those that it reads, ``needs[g]`` all that must run before it. So a
    merge changes only the sets of later groups.
    """

    def __init__(self, graph: Graph) -> None:
        self.of: dict[Node, int] = {}
        self.members: dict[int, list[Node]] = {}
        self._nodes = graph.nodes
        self.own: dict[int, int] = {}
        self.direct: dict[int, int] = {}
        self.needs: dict[int, int] = {}
        number = {node: i for i, node in enumerate(graph.nodes)}
        last = before = None
        for i, node in enumerate(graph.nodes):
            bits = 0
            for ref in node.refs:
                bits |= 1 << number[ref.node]
            if node.effect:
                if last is not None:
                    bits |= 1 << number[last]
                last = node
            every = bits
            for j in _ones(bits):
                producer = self.of[graph.nodes[j]]
                every |= self.needs[producer] | self.own[producer]
            if before is not None and node.part_of is not None and node.part_of is before.part_of:
                group = self.of[before]
            else:
                group, self.members[i], self.own[i], self.direct[i], self.needs[i] = i, [], 0, 0, 0
            self.of[node] = group
            self.members[group].append(node)
            self.own[group] |= 1 << i
            self.direct[group] = (self.direct[group] | bits) & ~self.own[group]
            self.needs[group] = (self.needs[group] | every) & ~self.own[group]
            before = node

    def can_join(self, a: int, b: int) -> bool:
        """Whether no third group has to run between the two."""
        return not (self._through(a, b) or self._through(b, a))

    def _through(self, first: int, second: int) -> bool:
        """Whether ``second`` needs a third group that needs ``first``."""
        own = self.own[first]
        if not self.needs[second] & own:
            return False
        between = {self.of[self._nodes[i]] for i in _ones(self.direct[second] & ~own)}
        return any(self.needs[g] & own for g in between)

    def join(self, a: int, b: int) -> int:
        """Merge group ``b`` into ``a``; return ``a``."""
        for node in self.members[b]:
            self.of[node] = a
        self.members[a] += self.members.pop(b)
        self.own[a] = own = self.own[a] | self.own.pop(b)
        every = (self.needs[a] | self.needs.pop(b)) & ~own
        self.direct[a] = (self.direct[a] | self.direct.pop(b)) & ~own
        self.needs[a] = every
        every |= own
        for g, bits in self.needs.items():
            if bits & own:
                self.needs[g] = bits | every
        return a


def _ones(bits: int) -> list[int]:
    """Return the positions of the bits that are set."""
    positions = []
    while bits:
        low = bits & -bits
        positions.append(low.bit_length() - 1)
        bits ^= low
    return positions
