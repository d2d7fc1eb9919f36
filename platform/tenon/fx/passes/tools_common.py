"""Sort graphs, name the targets of nodes, and group nodes that pass values other than tensors to each
other."""

from __future__ import annotations

import collections
import heapq
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.names import qualified_name
from tenon.fx.node import Node, map_arg
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

__all__ = [
    "FxNetAccFusionsFinder",
    "get_acc_ops_name",
    "get_node_target",
    "is_node_output_tensor",
    "legalize_graph",
    "stable_topological_sort",
]

Tensors: TypeAlias = tuple[Tensor] | list[Tensor]
TensorOrTensors: TypeAlias = Tensor | Tensors
NodeList: TypeAlias = list[Node]
NodeSet: TypeAlias = set[Node]
Names: TypeAlias = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_acc_ops_name(k: str | type) -> str:
    """Return the short name of an operator: ``acc_ops.`` and its name for those of a module ``acc_ops``."""
    if isinstance(k, str):
        return k
    module = getattr(k, "__module__", "") or ""
    if "acc_ops" in module:
        return f"acc_ops.{k.__name__}"
    return f"{module.replace('torch._ops', 'torch.ops')}.{k.__name__}"


def get_node_target(submodules: Mapping[str, Module], node: Node) -> str:
    """Return the name of the target of ``node``: a method's name, a function's path, or a module's class."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(
            f"Expect op types of {', '.join(sorted(CALLABLE_NODE_OPS))}, but found {node.op}"
        )
    if node.op == "call_method":
        return str(node.target)
    if node.op == "call_function":
        module = getattr(node.target, "__module__", "") or ""
        target: Any = node.target  # of any type
        return get_acc_ops_name(target) if "acc_ops" in module else qualified_name(target)
    module = submodules[str(node.target)]
    base = getattr(module, "_base_class_origin", type(module))
    return get_acc_ops_name(base)


def own_name(name: str) -> str:
    """Return ``name`` with the prefix ``torch.`` replaced by that of this package, as users may write
    either."""
    return f"tenon{name[5:]}" if name.startswith("torch.") else name


def is_node_output_tensor(node: Node) -> bool:
    """Whether the result of ``node`` is one tensor; shapes must have been propagated (``ShapeProp``)."""
    kind = node.meta.get("type")
    return kind is not None and isinstance(kind, type) and issubclass(kind, Tensor)


class FxNetAccFusionsFinder:
    """Finds groups of nodes for an accelerator that must stay together, as they pass no tensors to each
    other.

    Calling it returns the group of each such node.
    """

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        self.module, self.nodes = module, list(module.graph.nodes)
        self.acc_nodes = acc_nodes

    def __call__(self) -> dict[Node, NodeSet]:
        """Return the groups."""
        result: dict[Node, NodeSet] = {}
        remaining = [node for node in self.nodes if node in self.acc_nodes]
        for start in remaining:
            if start in result or is_node_output_tensor(start):
                continue
            group = self._connected(start)
            group = self._between(group)
            for node in group:
                group |= result.get(node, set())
            for node in group:
                result[node] = group
        return result

    def _connected(self, start: Node) -> NodeSet:
        """Return the accelerator's nodes that values other than tensors connect with ``start``."""
        group, waiting = set[Node](), [start]
        while waiting:
            node = waiting.pop()
            if node in group or node not in self.acc_nodes:
                continue
            group.add(node)
            waiting += [
                n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS and not is_node_output_tensor(n)
            ]
            if not is_node_output_tensor(node):
                waiting += list(node.users)
        return group

    def _between(self, group: NodeSet) -> NodeSet:
        """Add the accelerator's nodes on paths that leave the group and come back to it."""
        order = {node: k for k, node in enumerate(self.nodes)}
        last = max(map(order.__getitem__, group))
        after = _reach(group, lambda node: [u for u in node.users if order[u] <= last])
        first = min(map(order.__getitem__, group))
        before = _reach(group, lambda node: [n for n in node.all_input_nodes if order[n] >= first])
        return group | {node for node in after & before if node in self.acc_nodes}


def _reach(start: Iterable[Node], step: Any) -> NodeSet:  # a function from a node to its neighbours
    seen, waiting = set(start), list(start)
    while waiting:
        for node in step(waiting.pop()):
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return seen


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Sort the graph of ``gm`` topologically; return ``gm``.

    Nodes keep their order where possible; arguments and attributes come first. RuntimeError for a cycle.
    """
    waiting_for = {node: len(node.all_input_nodes) for node in gm.graph.nodes}
    queue = collections.deque(node for node in gm.graph.nodes if not waiting_for[node])
    new, copies = Graph(), dict[Node, Node]()
    while queue:
        node = queue.popleft()
        copies[node] = new.node_copy(node, copies.__getitem__)
        for user in node.users:
            waiting_for[user] -= 1
            if not waiting_for[user]:
                queue.append(user)
    if len(new.nodes) < len(gm.graph.nodes):
        cycle = sorted(node.name for node, count in waiting_for.items() if count)
        raise RuntimeError(f"Input graph has cycles, unable to add these nodes: {cycle}")
    new._codegen = gm.graph._codegen
    gm.graph = new
    return gm


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Sort the graph of ``gm`` topologically, keeping the order where possible; return ``gm``."""
    order = {node: k for k, node in enumerate(gm.graph.nodes)}
    waiting_for = {node: len(node.all_input_nodes) for node in order}
    # The earliest node whose inputs are complete comes next.
    ready = [order[node] for node in order if not waiting_for[node]]
    nodes, done = list(order), list[Node]()
    heapq.heapify(ready)
    while ready:
        node = nodes[heapq.heappop(ready)]
        done.append(node)
        for user in node.users:
            waiting_for[user] -= 1
            if not waiting_for[user]:
                heapq.heappush(ready, order[user])
    if len(done) < len(nodes):
        cycle = sorted(node.name for node, count in waiting_for.items() if count)
        raise AssertionError(f"Input graph has cycles, unable to sort these nodes: {cycle}")
    if done != nodes:
        for before, node in itertools.pairwise(done):
            before.append(node)
    return gm


def mapped(arguments: Any, values: Mapping[Node, Any]) -> Any:  # nested arguments
    """Return ``arguments`` with each node replaced by what ``values`` has for it."""
    return map_arg(arguments, values.__getitem__)
