"""``SubgraphMatcher``: find the places where a small graph, the pattern, occurs in a larger one.

Matching starts at the pattern's anchors, the results that only its output uses, and proceeds to their inputs.
A placeholder of the pattern matches any node or value. Next: ``tenon.fx.subgraph_rewriter`` replaces matches.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tenon.fx.graph import Graph
from tenon.fx.node import Node
from tenon.fx.passes.utils.argument_defaults import bound_arguments
from tenon.fx.passes.utils.fuser_utils import validate_partition
from tenon.tensors.tensor import Tensor

__all__ = ["InternalMatch", "SubgraphMatcher", "compare_graphs"]


@dataclass
class InternalMatch:
    """One place where the pattern occurs."""

    #: Nodes of the graph from which matching started.
    anchors: list[Node]
    #: Nodes of the pattern -> the nodes that they match; for placeholders also plain values.
    nodes_map: dict[Node, Any] = field(default_factory=dict)  # nodes or values of any type
    #: The nodes or values that match the pattern's placeholders, in order.
    placeholder_nodes: list[Any] = field(default_factory=list)  # nodes or values of any type
    #: The nodes that match the pattern's results, in order.
    returning_nodes: list[Node] = field(default_factory=list)
    #: Names that the pattern gives to nodes -> the nodes that they match.
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            anchors=self.anchors,
            nodes_map=self.nodes_map.copy(),
            placeholder_nodes=self.placeholder_nodes.copy(),
            returning_nodes=self.returning_nodes.copy(),
            name_node_map=self.name_node_map.copy(),
        )


class SubgraphMatcher:
    """Finds ``pattern`` in graphs.

    ``match_output``: the pattern's output must be the graph's output. ``match_placeholder``: its
    placeholders must be placeholders of the graph. ``remove_overlapping_matches``: each node is in one
    match at most, the first. ``ignore_literals``: numbers, strings and other plain values match any plain
    value.
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        if len(pattern.nodes) == 0:
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        dead = [node.name for node in pattern.nodes if not node.users and not node.is_impure()]
        if dead:
            raise AssertionError(
                f"SubgraphMatcher cannot be initialized with an pattern with dead code: {dead} have no users."
            )
        self.pattern_placeholder_nodes = [node for node in pattern.nodes if node.op == "placeholder"]
        output = next(iter(reversed(pattern.nodes)))
        self.pattern_returning_nodes: list[Node] = output.all_input_nodes
        self.pattern_anchors: list[Node] = (
            [output] if match_output else [n for n in output.all_input_nodes if len(n.users) == 1]
        )

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Return the matches in ``graph``, in its order.

        A node of the pattern whose name contains ``node_name_match`` matches all nodes whose names contain
        it, whatever their targets.
        """
        candidates = [
            [node for node in graph.nodes if self._nodes_are_equal(anchor, node, node_name_match)]
            for anchor in self.pattern_anchors
        ]
        matches = [m for m in self._complete(candidates, node_name_match) if self._is_contained(m.nodes_map)]
        # A match that would depend on its own result as one node is dropped.
        matches = [m for m in matches if validate_partition(self._matched(m))]
        for match in matches:
            match.placeholder_nodes = [
                match.nodes_map[pn] for pn in self.pattern_placeholder_nodes if pn in match.nodes_map
            ]
            match.returning_nodes = [match.nodes_map[pn] for pn in self.pattern_returning_nodes]
        return self._remove_overlapping_matches(matches) if self.remove_overlapping_matches else matches

    def _complete(self, candidates: list[list[Node]], name: str) -> Iterator[InternalMatch]:
        """Yield a match for each choice of anchors from which the whole pattern matches."""
        for anchors in itertools.product(*candidates):
            match = InternalMatch(anchors=list(anchors))
            if all(
                self._match_nodes(pn, gn, match, name)
                for pn, gn in zip(self.pattern_anchors, anchors, strict=True)
            ) and all(pn in match.nodes_map for pn in self._wanted()):
                yield match

    def _wanted(self) -> list[Node]:
        return [n for n in self.pattern.nodes if n.users or (n.op == "output" and self.match_output)]

    def _matched(self, match: InternalMatch) -> list[Node]:
        """Return the nodes of the graph that compute something in a match."""
        return [gn for pn, gn in match.nodes_map.items() if pn.op not in ("placeholder", "output")]

    def _match_attributes(self, pn: Node, gn: Node) -> bool:
        """Whether two ``get_attr`` nodes read values of one kind: tensors, or equal values of one type."""
        of_pattern, of_graph = _attribute(pn), _attribute(gn)
        if isinstance(of_pattern, Tensor):
            return isinstance(of_graph, Tensor)
        return type(of_pattern) is type(of_graph)

    def _nodes_are_equal(self, pn: Node, gn: Node, node_name_match: str = "") -> bool:
        if not self.match_placeholder and pn.op == "placeholder":
            return True
        if node_name_match and node_name_match in gn.name and node_name_match in pn.name:
            return True
        if pn.op != gn.op:
            return False
        if pn.op in ("placeholder", "output"):
            return True
        return self._match_attributes(pn, gn) if pn.op == "get_attr" else bool(pn.target == gn.target)

    def _is_contained(self, nodes_map: dict[Node, Any]) -> bool:  # nodes or values of any type
        """Whether the inner nodes of the match have no users outside; only results and inputs may have
        some."""
        inside = {gn: pn for pn, gn in nodes_map.items() if pn.op != "placeholder" and isinstance(gn, Node)}
        return all(
            user in inside
            for gn, pn in inside.items()
            if pn not in self.pattern_returning_nodes
            for user in gn.users
        )

    def _remove_overlapping_matches(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        disjoint: list[InternalMatch] = []
        taken: set[Node] = set()
        for match in matches:
            nodes = self._matched(match)
            if taken.isdisjoint(nodes):
                disjoint.append(match)
                taken.update(nodes)
        return disjoint

    def _match_literals(self, pn: Any, gn: Any, match: InternalMatch) -> bool:  # one is not a node
        """Whether two arguments match of which at most one is a node."""
        if isinstance(pn, Node):
            if pn.op != "placeholder":
                return False
            if pn in match.nodes_map:
                known = match.nodes_map[pn]
                return type(known) is type(gn) and bool(known == gn)
            match.nodes_map[pn] = gn
            return True
        if isinstance(gn, Node):
            return False
        return self.ignore_literals or (type(pn) is type(gn) and bool(pn == gn))

    def _match_arguments(self, pn: Any, gn: Any, match: InternalMatch, name: str) -> bool:  # nested arguments
        if isinstance(pn, Node) and isinstance(gn, Node):
            return self._match_nodes(pn, gn, match, name)
        if isinstance(pn, (list, tuple)) and isinstance(gn, (list, tuple)):
            return len(pn) == len(gn) and all(
                self._match_arguments(p, g, match, name) for p, g in zip(pn, gn, strict=True)
            )
        if isinstance(pn, dict) and isinstance(gn, dict):
            return pn.keys() == gn.keys() and all(
                self._match_arguments(pn[k], gn[k], match, name) for k in pn
            )
        if isinstance(pn, slice) and isinstance(gn, slice):
            ends = [(s.start, s.stop, s.step) for s in (pn, gn)]
            return all(self._match_arguments(p, g, match, name) for p, g in zip(*ends, strict=True))
        return self._match_literals(pn, gn, match)

    def _match_nodes(self, pn: Node, gn: Node, match: InternalMatch, node_name_match: str = "") -> bool:
        """Add ``pn`` -> ``gn`` and their inputs to ``match``; return False, without changing it, if they do
        not match."""
        if pn in match.nodes_map:
            return match.nodes_map[pn] is gn
        if any(gn is known for known in match.nodes_map.values()):
            return False
        if not self._nodes_are_equal(pn, gn, node_name_match):
            return False
        before = copy.copy(match)
        match.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        if all(self._match_arguments(p, g, match, node_name_match) for p, g in _pairs(pn, gn)):
            return True
        match.nodes_map = before.nodes_map
        return False


def _attribute(node: Node) -> Any:  # of any type
    value: Any = node.graph.owning_module  # of any type
    for name in str(node.target).split("."):
        value = getattr(value, name, None)
    return value


def _pairs(pn: Node, gn: Node) -> Iterator[tuple[Any, Any]]:  # nested arguments
    """Yield pairs of arguments of two nodes; an argument that one of them omits is paired with its
    default."""
    if len(pn.args) != len(gn.args) or pn.kwargs.keys() != gn.kwargs.keys():
        of_pattern, of_graph = bound_arguments(pn, gn)
    else:
        of_pattern, of_graph = (pn.args, pn.kwargs), (gn.args, gn.kwargs)
    yield of_pattern[0], of_graph[0]
    yield of_pattern[1], of_graph[1]


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs are equal up to names, by matching one as a pattern in the other."""
    matcher = SubgraphMatcher(left, match_output=True, match_placeholder=True)
    return len(matcher.match(right)) > 0
