"""``replace_pattern``: replace each occurrence of a small program in a traced one by another program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tenon.fx._symbolic_trace import symbolic_trace
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node
from tenon.fx.passes.tools_common import stable_topological_sort
from tenon.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from tenon.nn.module import Module

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

#: A function, a module, or a graph of one.
Program: TypeAlias = Callable[..., Any] | Graph | GraphModule
#: A predicate of a match, the graph and the pattern: whether to replace the match.
Filter: TypeAlias = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """One occurrence of the pattern."""

    #: The node from which matching started.
    anchor: Node
    #: Nodes of the pattern -> nodes of the original program.
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """One occurrence of the pattern, and the nodes that replaced it."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Program, replacement: Program) -> list[Match]:
    """Replace the occurrences of ``pattern`` in ``gm`` by ``replacement``; return the occurrences.

    Both are functions or modules with the same number of arguments and of results. An occurrence that
    overlaps with an earlier one is not replaced. Inner nodes of an occurrence must not have users outside;
    its results may.

    >>> import tenon
    >>> traced = tenon.fx.symbolic_trace(lambda x: tenon.neg(x) + 1)
    >>> len(replace_pattern(traced, lambda a: tenon.neg(a), lambda a: a * -2))
    1
    >>> traced(tenon.tensor([3.0])).tolist()
    [-5.0]
    """
    replaced = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(anchor=each.anchor, nodes_map=each.nodes_map) for each in replaced]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Program,
    replacement: Program | None = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """Replace those occurrences of ``pattern`` that all of ``match_filters`` accept.

    Instead of ``replacement``, ``replacement_callback(match, graph, pattern_graph)`` can return a graph
    for each. ``ignore_literals`` and ``node_name_match`` are those of ``SubgraphMatcher``.
    """
    pattern_graph = _graph_of(pattern)
    matcher = SubgraphMatcher(pattern_graph, ignore_literals=ignore_literals)
    filters = match_filters or []
    matches = [
        match
        for match in matcher.match(gm.graph, node_name_match)
        if all(accept(match, gm.graph, pattern_graph) for accept in filters)
    ]
    if replacement is None and replacement_callback is None:
        raise AssertionError("replace_pattern_with_filters needs `replacement` or `replacement_callback`.")
    common = _graph_of(replacement) if replacement is not None and replacement_callback is None else None
    result: list[ReplacedPatterns] = []
    #: Nodes that earlier replacements removed -> the nodes used instead.
    changed: dict[Node, Node] = {}
    for match in matches:
        if replacement_callback is not None:
            graph = replacement_callback(match, gm.graph, pattern_graph)
        elif common is not None:
            graph = common
        result.append(_replace(gm.graph, match, graph, changed))
    stable_topological_sort(gm)
    gm.recompile()
    if isinstance(replacement, Module):
        _replace_attributes(gm, replacement)
    return result


def _graph_of(program: Program) -> Graph:
    if isinstance(program, Graph):
        return program
    if isinstance(program, GraphModule):
        return program.graph
    return symbolic_trace(program).graph


def _replace(
    graph: Graph, match: InternalMatch, replacement: Graph, changed: dict[Node, Node]
) -> ReplacedPatterns:
    """Replace ``match`` by a copy of ``replacement``."""
    placeholders = [node for node in replacement.nodes if node.op == "placeholder"]
    if len(placeholders) != len(match.placeholder_nodes):
        raise AssertionError(
            f"the pattern has {len(match.placeholder_nodes)} arguments and its replacement"
            f" {len(placeholders)}: they must have as many."
        )
    values: dict[Node, Any] = {}  # nodes, or plain values that match arguments
    for placeholder, value in zip(placeholders, match.placeholder_nodes, strict=True):
        while isinstance(value, Node) and value in changed:
            value = changed[value]
        values[placeholder] = value
    inside = [gn for pn, gn in match.nodes_map.items() if pn.op not in ("placeholder", "output")]
    outside = [user for node in match.returning_nodes for user in node.users if user not in inside]
    point = graph.inserting_before(min(outside)) if outside else graph.inserting_after(max(inside))
    known = set(graph.nodes)
    with point:
        returned = graph.graph_copy(replacement, values)
    results = returned if isinstance(returned, (tuple, list)) else (returned,)
    if len(results) != len(match.returning_nodes):
        raise AssertionError(
            f"the pattern returns {len(match.returning_nodes)} values and its replacement"
            f" {len(results)}: they must return as many."
        )
    new = [values[node] for node in replacement.nodes if node in values and node.op != "placeholder"]
    for old, now in zip(match.returning_nodes, results, strict=True):
        old.replace_all_uses_with(now)
        changed[old] = now
    for node in sorted(inside, reverse=True):
        graph.erase_node(node)
    return ReplacedPatterns(match.anchors[0], match.nodes_map, [node for node in new if node not in known])


def _replace_attributes(gm: GraphModule, replacement: Module) -> None:
    """Copy the modules and attributes that the replacement reads, and remove modules that are no longer
    called."""
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        path = str(node.target)
        if _find(gm, path) is not _MISSING:
            continue
        value = _find(replacement, path)
        if value is _MISSING:
            raise RuntimeError(
                f'Attempted to create a "{node.op}" node during subgraph rewriting with target {path}, but'
                " the referenced attribute does not exist in the replacement GraphModule"
            )
        copied = copy.deepcopy(value)
        if isinstance(copied, Module):
            gm.add_submodule(path, copied)
            continue
        *above, last = path.split(".")
        setattr(gm.get_submodule(".".join(above)), last, copied)
    gm.delete_all_unused_submodules()
    gm.graph.lint()


_MISSING = object()


def _find(module: Module, path: str) -> Any:  # an attribute of any type
    value: Any = module  # of any type
    for name in path.split("."):
        value = getattr(value, name, _MISSING)
        if value is _MISSING:
            return _MISSING
    return value
