"""Find the nodes of a graph of operators that come from one module or function of the traced program.

``meta`` of a node records that: ``source_fn_stack`` is a list of (name, module class or function),
``torch_fn`` a pair of a numbered name for each call and the called function.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from tenon.fx.graph import Graph
from tenon.fx.node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """The nodes of one call."""

    nodes: list[Node]
    #: The called object: a module's class, a function, or its name.
    source: Any  # of any of these types
    #: Nodes from which the call receives values, and those of its nodes that others use.
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    #: Those of its nodes that read parameters.
    params: list[Node] = field(default_factory=list)


def get_source_partitions(
    graph: Graph,
    # of any type
    wanted_sources: list[Any],
    filter_fn: Callable[[Node], bool] | None = None,  # of any type
) -> dict[Any, list[SourcePartition]]:  # sources are of any type
    """Return the calls of each of ``wanted_sources`` that occurs in the graph, in order.

    ``filter_fn``: only partitions all of whose results it accepts.
    """
    calls_by_source: dict[Any, dict[Hashable, list[Node]]] = {}  # sources are of any type
    for node in graph.nodes:
        call = _call_of(node, wanted_sources)
        if call is not None:
            source, name = call
            calls_by_source.setdefault(source, {}).setdefault(name, []).append(node)
    result: dict[Any, list[SourcePartition]] = {}  # sources are of any type
    for source, calls in calls_by_source.items():
        partitions = [_partition(nodes, source) for nodes in calls.values()]
        if filter_fn is not None:
            partitions = [p for p in partitions if all(filter_fn(node) for node in p.output_nodes)]
        if partitions or filter_fn is None:
            result[source] = partitions
    return result


def _call_of(node: Node, sources: list[Any]) -> tuple[Any, str] | None:  # sources are of any type
    """Return the source among ``sources`` that ``node`` belongs to, and the name of the call; None if there
    is none."""
    stack = node.meta.get("source_fn_stack")
    if stack:
        name, source = stack[-1]
        if source in sources:
            return source, str(name)
    torch_fn = node.meta.get("torch_fn")
    if torch_fn is not None:
        name, called = torch_fn
        function = str(called).rsplit(".", 1)[-1]
        if function in sources:
            return function, str(name)
    return None


def _partition(nodes: list[Node], source: Any) -> SourcePartition:  # of any type
    inside = set(nodes)
    inputs: dict[Node, None] = {}
    for node in nodes:
        inputs.update(
            dict.fromkeys(n for n in node.all_input_nodes if n not in inside and n.op != "get_attr")
        )
    outputs = [n for n in nodes if any(user not in inside for user in n.users)]
    params = [n for n in nodes if n.op == "get_attr"]
    params += [n for node in nodes for n in node.all_input_nodes if n.op == "get_attr" and n not in inside]
    return SourcePartition(nodes, source, list(inputs), outputs, list(dict.fromkeys(params)))


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether a node of the second call uses a result of the first."""
    first = set(subgraph1.nodes)
    return any(used in first for node in subgraph2.nodes for used in node.all_input_nodes)
