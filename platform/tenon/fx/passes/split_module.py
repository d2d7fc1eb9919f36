"""``split_module``: split a graph into submodules, by a function from nodes to partitions."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable
from typing import Any

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, map_arg
from tenon.nn.module import Module

__all__ = ["Partition", "split_module"]


class Partition:
    """The contents of one future submodule."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.submod_name = f"submod_{name}"
        self.node_names: list[str] = []
        #: Nodes of the original graph that the submodule receives and returns, in the order of their uses.
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        #: Names of the partitions whose results this one uses, and of those that use its results.
        self.dependencies: dict[str, None] = {}
        self.dependents: dict[str, None] = {}
        self.graph = Graph()
        #: Nodes of the original graph -> their copies here.
        self.environment: dict[Node, Node] = {}
        #: Modules and attributes that the copies read, by name.
        self.targets: dict[str, Any] = {}  # modules, or attributes of any type

    def __repr__(self) -> str:
        return (
            f"name: {self.name},\n nodes: {self.node_names},\n inputs: {[n.name for n in self.inputs]},\n"
            f" outputs: {[n.name for n in self.outputs]},\n"
            f" partitions depended on: {list(self.dependencies)},\n"
            f" partition dependents: {list(self.dependents)}"
        )


def split_module(
    m: GraphModule,
    root_m: Module | None,
    split_callback: Callable[[Node], int],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """Return a module that calls submodules ``submod_<number>``, one for each partition of the nodes of
    ``m``.

    ``split_callback`` returns the partition number of a node; it is called for all nodes but arguments,
    attributes and the output, in order. RuntimeError if two partitions depend on each other. ``root_m`` is
    ignored.

    ``qualname_map`` receives, by their new names, the old names of the modules that submodules call.
    Submodules are called in topological order; with ``keep_original_order``, in the order of their first
    nodes as far as possible. ``keep_original_node_name``: nodes in submodules keep their names. Without
    ``keep_original_input_name`` arguments of submodules are named ``arg_0``, ``arg_1``, ...
    ``partition_affix`` is inserted into the names of submodules. ``tuple_return``: submodules with one result
    return a tuple, too.

    >>> import tenon
    >>> traced = tenon.fx.symbolic_trace(lambda x: (x + 1).relu() * 2)
    >>> halves = split_module(traced, None, lambda node: int(node.op == "call_method" or node.name == "mul"))
    >>> [name for name, _ in halves.named_children()], halves(tenon.tensor([-3.0, 1.0])).tolist()
    (['submod_0', 'submod_1'], [0.0, 4.0])
    """
    return _Split(
        m,
        qualname_map,
        bool(keep_original_node_name),
        keep_original_input_name,
        partition_affix,
        tuple_return,
    ).run(split_callback, bool(keep_original_order))


class _Split:
    """One run of ``split_module``."""

    def __init__(
        self,
        module: GraphModule,
        names: dict[str, str] | None,
        keep_node_names: bool,
        keep_input_names: bool,
        affix: str | None,
        tuple_return: bool,
    ) -> None:
        self.module, self.names, self.affix, self.tuple_return = module, names, affix, tuple_return
        self.keep_node_names, self.keep_input_names = keep_node_names, keep_input_names
        self.partitions: dict[str, Partition] = {}
        #: Node -> the name of its partition; arguments, attributes and the output have none.
        self.home: dict[Node, Partition] = {}
        self.base = Graph(tracer_cls=getattr(module.graph, "_tracer_cls", None))
        self.base_values: dict[Node, Node] = {}
        self.base_attributes: dict[str, Any] = {}  # modules, or attributes of any type

    def run(self, callback: Callable[[Node], int], keep_order: bool) -> GraphModule:
        self._assign(callback)
        self._find_uses()
        order = self._sorted(keep_order)
        for partition in self.partitions.values():
            self._add_placeholders(partition)
        self._copy_nodes()
        for partition in order:
            self._close(partition)
            self._call(partition)
        for node in self.module.graph.nodes:
            if node.op == "output":
                self.base.output(map_arg(node.args[0], self.base_values.__getitem__), type_expr=node.type)
        result = GraphModule(self.base_attributes, self.base)
        result.meta.update(self.module.meta)
        return result

    def _assign(self, callback: Callable[[Node], int]) -> None:
        """Assign each node to a partition, and copy the nodes that are in none."""
        for node in self.module.graph.nodes:
            if node.op == "output":
                continue
            if node.op == "placeholder":
                default = node.args
                self.base_values[node] = self.base.create_node(
                    "placeholder", node.target, default, {}, node.name, node.type
                )
                self.base_values[node].meta = dict(node.meta)
            elif node.op == "get_attr":
                if isinstance(value := _attribute(self.module, str(node.target)), Module):
                    continue  # each partition that uses the module reads it itself
                self.base_values[node] = self.base.get_attr(str(node.target))
                self.base_values[node].meta = dict(node.meta)
                self.base_attributes[str(node.target)] = value
            else:
                name = str(callback(node))
                partition = self.partitions.get(name)
                if partition is None:
                    partition = self.partitions[name] = Partition(name)
                    if self.affix is not None:
                        partition.submod_name = f"submod_{self.affix}_{name}"
                partition.node_names.append(node.name)
                self.home[node] = partition

    def _find_uses(self) -> None:
        """Find the inputs, outputs and dependencies of each partition."""
        for user in self.module.graph.nodes:
            here = self.home.get(user)
            if here is None and user.op != "output":
                continue
            for used in _in_order(user):
                there = self.home.get(used)
                if there is here:
                    continue
                if there is not None:
                    there.outputs.setdefault(used)
                if here is None or self._read_inside(used):
                    continue
                here.inputs.setdefault(used)
                if there is not None:
                    here.dependencies.setdefault(there.name)
                    there.dependents.setdefault(here.name)

    def _read_inside(self, node: Node) -> bool:
        return node.op == "get_attr" and node not in self.base_values

    def _sorted(self, keep_order: bool) -> list[Partition]:
        """Return the partitions in topological order; RuntimeError for a cycle."""
        position = {name: k for k, name in enumerate(self.partitions)}
        waiting_for = {name: len(p.dependencies) for name, p in self.partitions.items()}
        ready = [
            (position[name] if keep_order else k, name)
            for k, name in enumerate(waiting_for)
            if not waiting_for[name]
        ]
        heapq.heapify(ready)
        count, result = len(position), list[Partition]()
        while ready:
            partition = self.partitions[heapq.heappop(ready)[1]]
            result.append(partition)
            for name in partition.dependents:
                waiting_for[name] -= 1
                if not waiting_for[name]:
                    count += 1
                    heapq.heappush(ready, (position[name] if keep_order else count, name))
        if len(result) != len(self.partitions):
            stuck = sorted(self.partitions[name].submod_name for name, waits in waiting_for.items() if waits)
            raise RuntimeError(f"cycle exists between partitions! {stuck} need each other's results.")
        return result

    def _add_placeholders(self, partition: Partition) -> None:
        for k, node in enumerate(partition.inputs):
            name = node.name if self.keep_input_names else f"arg_{k}"
            copied = partition.graph.placeholder(name, type_expr=node.type)
            copied.meta = dict(node.meta)
            partition.environment[node] = copied

    def _copy_nodes(self) -> None:
        for node, partition in self.home.items():
            for used in node.all_input_nodes:
                if self._read_inside(used) and used not in partition.environment:
                    self._copy(used, partition)
            self._copy(node, partition)

    def _copy(self, node: Node, partition: Partition) -> None:
        """Copy a node into a partition, where names of modules and attributes have no dots."""
        target = node.target
        if node.op in ("call_module", "get_attr"):
            value = _attribute(self.module, str(target))
            target = str(target).replace(".", "_")
            partition.targets[target] = value
            if self.names is not None and node.op == "call_module":
                self.names[f"{partition.submod_name}.{target}"] = str(node.target)
        copied = partition.graph.create_node(
            node.op,
            target,
            map_arg(node.args, partition.environment.__getitem__),
            map_arg(node.kwargs, partition.environment.__getitem__),
            node.name if self.keep_node_names else None,
            node.type,
        )
        copied.meta = dict(node.meta)
        partition.environment[node] = copied

    def _close(self, partition: Partition) -> None:
        """Add the output to a partition, and create its module."""
        results = tuple(partition.environment[node] for node in partition.outputs)
        single = len(results) == 1 and not self.tuple_return
        partition.graph.output(results[0] if single else results)
        self.base_attributes[partition.submod_name] = GraphModule(partition.targets, partition.graph)

    def _call(self, partition: Partition) -> None:
        """Call a partition in the base graph, and index its results."""
        arguments = tuple(self.base_values[node] for node in partition.inputs)
        call = self.base.call_module(partition.submod_name, arguments)
        outputs = list(partition.outputs)
        if len(outputs) == 1 and not self.tuple_return:
            self.base_values[outputs[0]] = call
            call.meta.update(outputs[0].meta)
            return
        for k, node in enumerate(outputs):
            item = self.base.call_function(operator.getitem, (call, k))
            item.meta.update(node.meta)
            self.base_values[node] = item


def _in_order(node: Node) -> list[Node]:
    """Return the nodes that ``node`` uses in the order of its arguments."""
    return list(node.all_input_nodes)


def _attribute(module: Module, path: str) -> Any:  # a module, or an attribute of any type
    value: Any = module  # of any type
    for name in path.split("."):
        value = getattr(value, name)
    return value
