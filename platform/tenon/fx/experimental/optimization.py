"""Optimize programs for inference: batch norms folded into the layers before them, dropouts removed."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from tenon import nn
from tenon.fx._symbolic_trace import Tracer, symbolic_trace
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.interpreter import Transformer
from tenon.fx.node import Argument, Node, Target
from tenon.nn.module import Module
from tenon.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = [
    "UnionFind",
    "extract_subgraph",
    "fuse",
    "matches_module_pattern",
    "optimize_for_inference",
    "remove_dropout",
    "replace_node_module",
]

#: A layer, the batch norm that can be folded into it, and the function that does so.
_FUSIBLE: list[tuple[type[Module], type[Module], Any]] = [  # functions have different parameters
    (nn.Conv1d, nn.BatchNorm1d, fuse_conv_bn_eval),
    (nn.Conv2d, nn.BatchNorm2d, fuse_conv_bn_eval),
    (nn.Conv3d, nn.BatchNorm3d, fuse_conv_bn_eval),
    (nn.Linear, nn.BatchNorm1d, fuse_linear_bn_eval),
]


def _parent_name(target: str) -> tuple[str, str]:
    """Return the path of the module that has the one at ``target``, and its name there."""
    parent, _, name = target.rpartition(".")
    return parent, name


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Module]) -> bool:
    """Whether ``node`` calls a module of the pattern's second class on the result of one of its first
    class."""
    nodes: list[Any] = [node.args[0] if node.args else None, node]  # of any type
    for kind, current in zip(pattern, nodes, strict=False):
        if not isinstance(current, Node) or current.op != "call_module":
            return False
        if not isinstance(current.target, str) or type(modules.get(current.target)) is not kind:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, Module], new_module: Module) -> None:
    """Replace the module that ``node`` calls by ``new_module``."""
    parent, name = _parent_name(str(node.target))
    modules[str(node.target)] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> Module:
    """Trace ``model``, which is in eval mode, and fold batch norms into the convolutions and linear layers
    before.

    A layer that is used elsewhere too, or a batch norm without running statistics, is not folded. ``inplace``
    changes the layers of ``model`` itself; ``no_trace``: it is traced already.

    >>> import tenon
    >>> model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
    >>> [node.target for node in fuse(model).graph.nodes if node.op == "call_module"]
    ['0']
    """
    if not inplace:
        model = copy.deepcopy(model)
    # of any type
    fx_model: Any = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(fx_model.named_modules())
    for first, norm, function in _FUSIBLE:
        for node in list(fx_model.graph.nodes):
            if not matches_module_pattern((first, norm), node, modules) or len(node.args[0].users) > 1:
                continue
            batch_norm: Any = modules[node.target]  # of any type
            if not batch_norm.track_running_stats or batch_norm.running_mean is None:
                continue
            replace_node_module(node.args[0], modules, function(modules[node.args[0].target], batch_norm))
            node.replace_all_uses_with(node.args[0])
            fx_model.graph.erase_node(node)
    fx_model.delete_all_unused_submodules()
    fx_model.recompile()
    result: Module = fx_model
    return result


def remove_dropout(model: Module) -> Module:
    """Return ``model``, traced, without its dropout layers.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    >>> [node.target for node in remove_dropout(model).graph.nodes if node.op == "call_module"]
    ['0']
    """

    class DropoutRemover(Transformer):
        """Copies a graph without dropouts."""

        # of any type
        def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[str(target)], nn.Dropout):
                if len(args) != 1:
                    raise AssertionError(
                        f"the dropout {target} is called with {len(args)} arguments, not one."
                    )
                return args[0]
            return super().call_module(target, args, kwargs)

    return DropoutRemover(symbolic_trace(model)).transform()


def extract_subgraph(
    orig_module: Module, nodes: list[Node], inputs: list[Node], outputs: list[Node]
) -> GraphModule:
    """Return a module of copies of ``nodes``, with ``inputs`` as its arguments and ``outputs`` as its
    results."""
    graph, values = Graph(), dict[Node, Node]()
    for node in inputs:
        values[node] = graph.placeholder(node.name)
    for node in nodes:
        values[node] = graph.node_copy(node, values.__getitem__)
    graph.output([values[node] for node in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)


class UnionFind:
    """Disjoint sets of numbers below ``n``."""

    def __init__(self, n: int) -> None:
        self.parent: list[int | None] = [None] * n
        self.size = [0] * n

    def make_set(self, v: int) -> None:
        """Make a set of ``v`` alone."""
        self.parent[v], self.size[v] = v, 1

    def find(self, v: int) -> int:
        """Return the representative of the set of ``v``."""
        parent = self.parent[v]
        if parent is None:
            raise AssertionError(f"{v} is in no set: call make_set({v}) first.")
        if parent != v:
            parent = self.parent[v] = self.find(parent)
        return parent

    def join(self, a: int, b: int) -> int | None:
        """Unite the sets of ``a`` and ``b``; return the representative of the union."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return a
        if self.size[a] < self.size[b]:
            a, b = b, a
        self.parent[b] = a
        self.size[a] += self.size[b]
        return a


def optimize_for_inference(
    model: Module,
    # of any type
    pass_config: dict[str, Any] | None = None,
    tracer: type[Tracer] = Tracer,  # of any type
) -> Module:
    """Return ``model``, in eval mode, traced, with batch norms folded and dropouts removed.

    ``pass_config`` can set ``"conv_bn_fuse"`` or ``"remove_dropout"`` to False. PyTorch's third pass,
    ``"mkldnn_layout_optimize"``, has nothing to do here: the kernels choose oneDNN and its layouts
    themselves.
    """
    config = {
        "conv_bn_fuse": True,
        "remove_dropout": True,
        "mkldnn_layout_optimize": {},
        **(pass_config or {}),
    }
    if config["conv_bn_fuse"]:
        model = fuse(model)
    if config["remove_dropout"]:
        model = remove_dropout(model)
    inner = tracer()
    graph = inner.trace(copy.deepcopy(model))
    return GraphModule(inner.root, graph)
