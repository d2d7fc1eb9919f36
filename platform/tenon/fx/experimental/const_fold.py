"""``split_const_subgraphs``: compute the part of a program that does not depend on its arguments only
once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tenon.fx._symbolic_trace import symbolic_trace
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, map_arg
from tenon.fx.passes.split_module import split_module
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.tensor import Tensor

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A module whose constants are computed at its first call, and kept as parameters from then on.

    ``const_subgraph_module`` computes them; None if there are none.
    """

    def __init__(
        self,
        root: Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: object, **kwargs: object) -> Any:  # as the module returns
        """Call the module, after computing the constants at the first call."""
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Compute the constants."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        if self.has_folding_been_run:
            raise AssertionError("run_folding: the constants have been computed already.")
        self.has_folding_been_run = True
        folded = self.const_subgraph_module()

        def as_parameter(value: Any) -> Any:  # what the constants' part returns
            if not isinstance(value, Tensor):
                return value
            return Parameter(value.detach().clone(), requires_grad=value.requires_grad)

        single = not isinstance(folded, (tuple, list))
        value = as_parameter(folded) if single else _Folded([as_parameter(each) for each in folded])
        setattr(self, self.fx_const_folded_attrs_name, value)


class _Folded(Module):
    """Several constants, by number."""

    def __init__(self, values: list[Any]) -> None:  # parameters, or plain values
        super().__init__()
        for k, value in enumerate(values):
            setattr(self, f"c{k}", value)
        self.count = len(values)

    def __getitem__(self, k: int) -> Any:  # a parameter, or a plain value
        return getattr(self, f"c{k}")

    def __len__(self) -> int:
        return self.count


def get_unique_attr_name_in_module(mod_traced: GraphModule, name: str) -> str:
    """Return ``name``, made legal, with a number if the module has such an attribute."""
    name = re.sub(r"[^0-9a-zA-Z_]+", "_", name)
    if name[0].isdigit():
        name = f"_{name}"
    while hasattr(mod_traced, name):
        match = re.match(r"(.*)_(\d+)$", name)
        name = f"{name}_1" if match is None else f"{match[1]}_{int(match[2]) + 1}"
    return name


def _constant_nodes(module: GraphModule, skip: Callable[[Node], bool] | None) -> set[Node]:
    """Return the nodes that depend on no argument and can be computed once; reads of attributes are not
    included."""
    constant: set[Node] = set()
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op != "get_attr" and not set(node.all_input_nodes) <= constant:
            continue
        if (skip is not None and skip(node)) or node.is_impure():
            continue
        constant.add(node)
    return {node for node in constant if node.op != "get_attr"}


def split_const_subgraphs(
    module: Module | GraphModule,
    skip_folding_node_fn: Callable[[Node], bool] | None = None,
    device_for_folded_attrs: str = "cpu",
) -> FoldedGraphModule:
    """Return ``module`` with the part that depends on no argument computed at the first call.

    ``skip_folding_node_fn`` returns True for nodes that are computed at each call, with all that depend on
    them.

    >>> import tenon
    >>> class Scaled(tenon.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = tenon.nn.Parameter(tenon.tensor([2.0]))
    ...     def forward(self, x):
    ...         return x * (self.scale + 1).exp()
    >>> folded = split_const_subgraphs(Scaled())
    >>> [node.op for node in folded.graph.nodes]
    ['placeholder', 'get_attr', 'call_function', 'output']
    """
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant = _constant_nodes(traced, skip_folding_node_fn)
    if not constant:
        return FoldedGraphModule(traced, traced.graph)
    split = split_module(traced, module, lambda node: 0 if node in constant else 1)
    # The attributes that the constants' part needs are its arguments: they are read inside of it instead.
    call = next(n for n in split.graph.nodes if n.op == "call_module" and n.target == "submod_0")
    part: GraphModule = split.submod_0
    root, const_graph = _standalone(split, part, call)
    name = get_unique_attr_name_in_module(split, "_FX_CONST_FOLDED_ATTRS")
    _read_constants(split, call, name)
    if hasattr(split, "submod_1"):
        _inline_module(split, "submod_1")
    del split.submod_0
    split.graph.eliminate_dead_code()
    for path, value in root.items():
        _adopt(split, path, value)
    return FoldedGraphModule(split, split.graph, const_graph, name, device_for_folded_attrs)


# of any type
def _standalone(split: GraphModule, part: GraphModule, call: Node) -> tuple[dict[str, Any], Graph]:
    """Return the constants' graph without arguments, and the modules and tensors that it reads, by path."""
    reads: dict[str, Any] = {}  # of any type
    graph, values = Graph(), dict[Node, Node]()
    sources = dict(zip([n for n in part.graph.nodes if n.op == "placeholder"], call.args, strict=True))
    for node in part.graph.nodes:
        if node.op == "placeholder":
            source = sources[node]
            values[node] = graph.get_attr(str(source.target))
            values[node].meta = dict(source.meta)
        elif node.op == "output":
            graph.output(map_arg(node.args[0], values.__getitem__))
        else:
            values[node] = graph.node_copy(node, values.__getitem__)
            if node.op in ("call_module", "get_attr"):
                path = get_unique_attr_name_in_module(split, f"_FX_CONST_{node.target}")
                reads[path] = getattr(part, str(node.target))
                values[node].target = path
    return reads, graph


def _adopt(module: GraphModule, path: str, value: object) -> None:
    setattr(module, path, value)


def _read_constants(split: GraphModule, call: Node, name: str) -> None:
    """Replace the call that computes the constants by reads of the stored constants."""
    items = [user for user in call.users if user.op == "call_function" and len(user.args) == 2]
    part_output = next(iter(reversed(split.submod_0.graph.nodes))).args[0]
    with split.graph.inserting_before(call):
        if not isinstance(part_output, (tuple, list)):
            setattr(split, name, Parameter(Tensor([]), requires_grad=False))
            read = split.graph.get_attr(name)
            read.meta = dict(call.meta)
            call.replace_all_uses_with(read)
        else:
            setattr(split, name, _Folded([Parameter(Tensor([]), requires_grad=False) for _ in part_output]))
            for item in items:
                read = split.graph.get_attr(f"{name}.c{item.args[1]}")
                read.meta = dict(item.meta)
                item.replace_all_uses_with(read)
                split.graph.erase_node(item)
    split.graph.erase_node(call)


def _inline_module(gm: GraphModule, inline_mod_name: str, run_dce: bool = True) -> dict[Node, Node]:
    """Replace the call of a submodule by copies of its nodes; return the copies by the original nodes."""
    inner: GraphModule = getattr(gm, inline_mod_name)
    call = next(n for n in gm.graph.nodes if n.op == "call_module" and n.target == inline_mod_name)
    values: dict[Node, Any] = {}  # nodes, or plain values
    arguments = iter(call.args)
    for node in inner.graph.nodes:
        if node.op == "placeholder":
            values[node] = call.kwargs[node.name] if node.name in call.kwargs else next(arguments)
    with gm.graph.inserting_before(call):
        for node in inner.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            copied = gm.graph.node_copy(node, values.__getitem__)
            if node.op in ("call_module", "get_attr"):
                path = _place_of(gm, inner, str(node.target))
                copied.target = path
            values[node] = copied
    result = map_arg(next(iter(reversed(inner.graph.nodes))).args[0], values.__getitem__)
    if isinstance(result, Node):
        call.replace_all_uses_with(result)
    else:
        for item in list(call.users):
            if item.op != "call_function" or len(item.args) != 2:
                item.args = map_arg(item.args, lambda n: result if n is call else n)
                continue
            item.replace_all_uses_with(result[item.args[1]])
            gm.graph.erase_node(item)
    gm.graph.erase_node(call)
    delattr(gm, inline_mod_name)
    if run_dce:
        gm.graph.eliminate_dead_code()
    return {node: value for node, value in values.items() if isinstance(value, Node)}


def _place_of(gm: GraphModule, inner: GraphModule, path: str) -> str:
    """Return the path in ``gm`` of the attribute that ``inner`` has at ``path``; add it to ``gm`` if it is
    missing."""
    value = getattr(inner, path)
    if getattr(gm, path, None) is value:
        return path
    name = get_unique_attr_name_in_module(gm, path)
    setattr(gm, name, value)
    return name
