"""A matcher for patterns that return, besides their results, a dictionary from names to nodes."""

from __future__ import annotations

import copy

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node
from tenon.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(gm: GraphModule) -> tuple[GraphModule, dict[str, Node]]:
    """Remove the dictionary from the results of a pattern; return the pattern and the dictionary."""
    for node in reversed(gm.graph.nodes):
        if node.op != "output":
            continue
        returned = node.args[0]
        if not isinstance(returned, (tuple, list)) or not isinstance(returned[-1], dict):
            raise AssertionError(
                f"the pattern returns {returned}: it must return its results and, last, a dictionary of"
                " names -> nodes."
            )
        *results, names = returned
        node.args = (tuple(results) if len(results) > 1 else results[0],)
        gm.recompile()
        return gm, dict(names)
    raise AssertionError(
        "the pattern returns nothing: it must return its results and a dictionary of names -> nodes."
    )


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """Like ``SubgraphMatcher``; matches have the nodes that the pattern names in ``name_node_map``.

    >>> import tenon
    >>> def pattern(x):
    ...     product = x * 2
    ...     return product.relu(), {"product": product}
    >>> matcher = SubgraphMatcherWithNameNodeMap(tenon.fx.symbolic_trace(pattern))
    >>> (match,) = matcher.match(tenon.fx.symbolic_trace(lambda y: (y * 2).relu() + 1).graph)
    >>> match.name_node_map["product"]
    mul
    """

    def __init__(
        self,
        pattern_gm: GraphModule,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        pattern_gm, self.name_node_map = _split_to_graph_and_name_node_map(copy.deepcopy(pattern_gm))
        self.pattern_gm = pattern_gm
        super().__init__(
            pattern_gm.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals
        )

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Return the matches in ``graph``, with ``name_node_map``."""
        matches = super().match(graph, node_name_match)
        for match in matches:
            match.name_node_map = {name: match.nodes_map[pn] for name, pn in self.name_node_map.items()}
        return matches
