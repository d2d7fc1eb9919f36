"""Replace sets of nodes by calls of modules that contain them."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node
from tenon.fx.passes.tools_common import stable_topological_sort
from tenon.fx.passes.utils.submodule_lift import lift_subgraph_as_module

#: The operations of nodes that can be moved into a module.
_FUSIBLE = frozenset(["get_attr", "call_module", "call_function", "call_method"])


def topo_sort(nodes: list[Node]) -> list[Node]:
    """Return ``nodes`` in topological order; AssertionError for a cycle."""
    inside = dict.fromkeys(nodes)
    waiting_for = {node: sum(n in inside for n in node.all_input_nodes) for node in inside}
    ready = [node for node in inside if not waiting_for[node]]
    result: list[Node] = []
    for node in ready:  # grows
        result.append(node)
        for user in node.users:
            if user in inside:
                waiting_for[user] -= 1
                if not waiting_for[user]:
                    ready.append(user)
    if len(result) != len(inside):
        raise AssertionError(
            f"topological sort failed: {[n.name for n in inside if waiting_for[n]]} form a cycle."
        )
    return result


def validate_partition(partition: Iterable[Node]) -> bool:
    """Whether the nodes can be fused to one: no path leaves them and returns."""
    inside = set(partition)
    seen = {user for node in inside for user in node.users if user not in inside}
    waiting = list(seen)
    while waiting:
        for user in waiting.pop().users:
            if user in inside:
                return False
            if user not in seen:
                seen.add(user)
                waiting.append(user)
    return True


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: list[Node],
    module_name: str,
    partition_lookup_table: dict[Node, int | None] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """Return a module with copies of ``nodes``, sorted, and the nodes that are its inputs and its results.

    ``gm`` is not changed. ``always_return_tuple``: the module returns a tuple even for one result.
    """
    for node in nodes:
        if node.graph.owning_module is not gm:
            raise AssertionError(f"{node} doesn't belong to passed in graph module {gm._get_name()}")
        if getattr(node, "_erased", False):
            raise AssertionError(
                f"{node} has been removed from owning graph: it is in another partition as well."
            )
        if node.op not in _FUSIBLE:
            raise AssertionError(f"{node} of type {node.op} cannot be fused: only {sorted(_FUSIBLE)} can.")
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    inside = dict.fromkeys(nodes) if partition_lookup_table is None else partition_lookup_table
    subgraph, copies, inputs = Graph(), dict[Node, Node](), dict[Node, Node]()

    def value(x: Node) -> Node:
        if x in inside:
            return copies[x]
        if x not in inputs:
            inputs[x] = subgraph.placeholder(x.name, type_expr=x.type)
            inputs[x].meta = dict(x.meta)
        return inputs[x]

    for node in nodes:
        copies[node] = subgraph.node_copy(node, value)
    results = {node: copies[node] for node in nodes if any(user not in inside for user in node.users)}
    _placeholders_first(subgraph)
    outs = tuple(results.values())
    subgraph.output(outs[0] if len(outs) == 1 and not always_return_tuple else outs)
    subgraph.lint()
    fused, _ = lift_subgraph_as_module(gm, subgraph, comp_name="", class_name=module_name)
    return fused, tuple(inputs), tuple(results)


def _placeholders_first(graph: Graph) -> None:
    """Move the placeholders of ``graph`` to its beginning, in their order."""
    first = next(iter(graph.nodes))
    for node in graph.nodes:
        if node.op != "placeholder":
            first = node
            break
    for node in graph.nodes:
        if node.op == "placeholder" and node > first:
            first.prepend(node)


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Add ``sub_gm`` to ``gm`` and replace ``orig_outputs`` by the results of a call of it; return ``gm``.

    The call is inserted after ``insertion_point``, by default after the last of ``orig_inputs`` and
    ``orig_outputs``.
    """
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    graph = gm.graph
    if insertion_point is None:
        before = [*orig_inputs, *orig_outputs]
        insertion_point = max(before) if before else None
    with graph.inserting_after(insertion_point):
        call = graph.call_module(name, args=orig_inputs, kwargs=None)
    returned = next(iter(reversed(sub_gm.graph.nodes))).args[0]
    if len(orig_outputs) == 1 and not isinstance(returned, tuple):
        call.meta = dict(orig_outputs[0].meta)
        orig_outputs[0].replace_all_uses_with(call)
        return gm
    with graph.inserting_after(call):
        for index, original in enumerate(orig_outputs):
            item = graph.call_function(operator.getitem, (call, index))
            item.meta = dict(original.meta)
            original.replace_all_uses_with(item)
    call.meta["val"] = tuple(original.meta.get("val") for original in orig_outputs)
    return gm


def erase_nodes(gm: GraphModule, nodes: list[Node]) -> None:
    """Erase ``nodes``, which are in topological order."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule,
    partitions: list[dict[Node, int | None]],
    prefix: str = "fused_",
    always_return_tuple: bool = False,
) -> GraphModule:
    """Replace each of ``partitions`` by the call of a module ``<prefix><number>``; return ``gm``."""
    for number, partition in enumerate(partitions):
        nodes = topo_sort(list(partition))
        name = f"{prefix}{number}"
        fused, inputs, outputs = fuse_as_graphmodule(
            gm, nodes, name, partition, always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, fused, inputs, outputs, insertion_point=nodes[-1])
        erase_nodes(gm, nodes)
    stable_topological_sort(gm)
    gm.graph.lint()
    return gm
