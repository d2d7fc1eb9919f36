"""``split_by_tags``: split a graph into submodules by the ``tag`` of its nodes, in a given order of the
tags."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, map_arg
from tenon.fx.passes.subgraphs import Subgraph
from tenon.fx.passes.tools_common import CALLABLE_NODE_OPS, is_node_output_tensor
from tenon.fx.passes.utils.submodule_lift import HolderModule, lift_subgraph_as_module

__all__ = [
    "Component",
    "getattr_recursive",
    "move_non_tensor_nodes_on_boundary",
    "setattr_recursive",
    "split_by_tags",
]


def getattr_recursive(obj: object, name: str) -> Any:  # an attribute of any type
    """Return the attribute at a path, ``"layers.0.weight"``; an item of a dictionary where a path leads
    into one."""
    for part in name.split("."):
        if isinstance(obj, dict) and part in obj:
            obj = obj[part]
        elif hasattr(obj, part):
            obj = getattr(obj, part)
        else:
            return None
    return obj


def setattr_recursive(obj: object, attr: str, value: object) -> None:
    """Set the attribute at a path."""
    *path, last = attr.split(".")
    for part in path:
        obj = getattr(obj, part)
    setattr(obj, last, value)


@dataclass
class Component:
    """One submodule under construction."""

    graph: Graph
    order: int
    name: str
    #: The placeholders of ``graph``, and the nodes of the original graph whose values they receive.
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    #: The nodes of the original graph whose values the component returns.
    orig_outputs: list[Node] = field(default_factory=list)
    #: Nodes that read attributes -> their copies in ``graph``.
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


class _TagSplit:
    """One run of ``split_by_tags``."""

    def __init__(self, gm: GraphModule, tags: list[str]) -> None:
        self.gm = gm
        self.components = {tag: Component(Graph(), order, tag) for order, tag in enumerate(tags)}
        self.main = Graph()
        #: Nodes of the original graph -> their values in the main graph, and in their component.
        self.main_values: dict[Node, Node] = {}
        self.home: dict[Node, Component] = {}
        self.copies: dict[Node, Node] = {}

    def run(self) -> Node:
        """Copy all nodes; return the output node."""
        for node in self.gm.graph.nodes:
            if node.op == "output":
                return self._collect_outputs(node)
            if node.op == "placeholder":
                copied = self.main.placeholder(node.name, type_expr=node.type)
                copied.meta = dict(node.meta)
                self.main_values[node] = copied
            elif node.op != "get_attr":  # attributes are read in each component that uses them
                self._copy(node)
        raise AssertionError("the graph has no output node: call graph.output(value) first.")

    def _component_of(self, node: Node) -> Component:
        tag = getattr(node, "tag", None)
        if tag is None:
            raise AssertionError(
                f"node {node.name} has no tag: set node.tag to one of {list(self.components)}."
            )
        if tag not in self.components:
            raise KeyError(f"node {node.name} has the tag {tag!r}, which is none of {list(self.components)}.")
        return self.components[tag]

    def _copy(self, node: Node) -> None:
        component = self._component_of(node)
        for used in node.all_input_nodes:
            source = self.home.get(used)
            if source is not None and source.order > component.order:
                raise AssertionError(
                    f"node {node.name} of component {component.name!r} uses {used.name} of {source.name!r},"
                    " which comes later in the tags."
                )
        copied = component.graph.node_copy(node, lambda used: self._value(used, component))
        self.home[node], self.copies[node] = component, copied

    def _value(self, used: Node, component: Component) -> Node:
        """Return the copy of ``used``, or the placeholder for it, in ``component``."""
        if used.op == "get_attr":
            if used not in component.getattr_maps:
                copied = component.graph.get_attr(str(used.target), type_expr=used.type)
                copied.meta = dict(used.meta)
                component.getattr_maps[used] = copied
            return component.getattr_maps[used]
        if self.home.get(used) is component:
            return self.copies[used]
        if used in component.orig_inputs:
            return component.input_placeholders[component.orig_inputs.index(used)]
        placeholder = component.graph.placeholder(used.name, type_expr=used.type)
        placeholder.meta = dict(used.meta)
        component.orig_inputs.append(used)
        component.input_placeholders.append(placeholder)
        self._returned(used)
        return placeholder

    def _returned(self, node: Node) -> None:
        source = self.home.get(node)
        if source is not None and node not in source.orig_outputs:
            source.orig_outputs.append(node)

    def _collect_outputs(self, output: Node) -> Node:
        for node in output.all_input_nodes:
            if node.op == "get_attr":
                self.main_values[node] = self.main.get_attr(str(node.target))
            self._returned(node)
        return output


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> GraphModule | tuple[GraphModule, dict[str, str]]:
    """Return a module that calls a submodule for each of ``tags``, in that order, with the nodes of that
    tag.

    Every node but arguments, attributes and the output has a ``tag``. ``return_fqn_mapping``: return also the
    new paths of the modules that are called. ``return_tuple``: submodules with one result return a tuple,
    too.

    >>> import tenon
    >>> traced = tenon.fx.symbolic_trace(lambda x: (x + 1) * 2)
    >>> for node in traced.graph.nodes:
    ...     node.tag = "first" if node.name == "add" else "second"
    >>> [name for name, _ in split_by_tags(traced, ["first", "second"]).named_children()]
    ['first', 'second']
    """
    split = _TagSplit(gm, tags)
    output = split.run()
    main, values = split.main, split.main_values
    submodules: dict[str, Any] = {}  # of any type
    names: dict[str, str] = {}
    for component in split.components.values():
        results = tuple(split.copies[node] for node in component.orig_outputs)
        single = len(results) == 1 and not return_tuple
        component.graph.output(results[0] if single else results)
        _placeholders_first(component)
        component.gm, mapping = lift_subgraph_as_module(gm, component.graph, comp_name=component.name)
        names.update(mapping)
        submodules[component.name] = component.gm
        call = main.call_module(component.name, tuple(values[n] for n in component.orig_inputs))
        for k, node in enumerate(component.orig_outputs):
            values[node] = call if single else main.call_function(operator.getitem, (call, k))
            values[node].meta = dict(node.meta)
    copied = main.output(map_arg(output.args[0], values.__getitem__))
    copied.meta = dict(output.meta)
    root = HolderModule(submodules)
    for node in main.find_nodes(op="get_attr"):
        _set_path(root, str(node.target), getattr_recursive(gm, str(node.target)))
    main._codegen = gm.graph._codegen
    result = GraphModuleCls(root, main)
    return (result, names) if return_fqn_mapping else result


def _placeholders_first(component: Component) -> None:
    for placeholder in reversed(component.input_placeholders):
        next(iter(component.graph.nodes)).prepend(placeholder)


def _set_path(root: HolderModule, path: str, value: object) -> None:
    place: Any = root  # of any type
    *above, last = path.split(".")
    for name in above:
        if not hasattr(place, name):
            place.add_module(name, HolderModule({}))
        place = getattr(place, name)
    setattr(place, last, value)


def move_non_tensor_nodes_on_boundary(subgraphs: list[Subgraph]) -> None:
    """Move nodes whose results are not tensors into the subgraph that uses them, so that only tensors cross
    borders.

    Such a node moves if all of its users are in one other subgraph.
    """
    subgraph_of = {node: subgraph for subgraph in subgraphs for node in subgraph.nodes}
    for subgraph in reversed(subgraphs):
        for node in reversed(list(subgraph.nodes)):
            if node.op not in CALLABLE_NODE_OPS or is_node_output_tensor(node):
                continue
            targets = {id(subgraph_of[user]): subgraph_of[user] for user in node.users if user in subgraph_of}
            if len(targets) != 1 or any(user not in subgraph_of for user in node.users):
                continue
            (target,) = targets.values()
            if target is subgraph:
                continue
            subgraph.nodes.remove(node)
            target.nodes.insert(0, node)
            subgraph_of[node] = target
