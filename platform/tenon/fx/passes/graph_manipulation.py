"""Sizes in bytes of what nodes read and return, and calls exchanged for others."""

from __future__ import annotations

from typing import Any, NamedTuple

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, Target
from tenon.fx.passes.shape_prop import ShapeProp, TensorMetadata
from tenon.fx.passes.tools_common import mapped
from tenon.tensors.tensor import Tensor

__all__ = [
    "get_size_of_all_nodes",
    "get_size_of_node",
    "get_tensor_meta",
    "replace_target_nodes_with",
    "size_bytes",
]


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Target, new_op: str, new_target: Target
) -> None:
    """Exchange what nodes of ``old_op`` call, ``old_target``, for another operation and target."""
    new, copies = Graph(), dict[Node, Node]()
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            args, kwargs = mapped(node.args, copies), mapped(node.kwargs, copies)
            copies[node] = new.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            copies[node] = new.node_copy(node, copies.__getitem__)
    fx_module.graph = new


class size_bytes(NamedTuple):
    """How many bytes a node's result has, and those with the parameters that the node has."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Tensor] | None = None) -> None:
    """Give every node but the output ``size_bytes``; ``args`` are examples from which shapes are
    propagated first."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        sized: Any = node  # any attribute may be set
        sized.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node: Node) -> TensorMetadata:
    """Return the metadata that shape propagation has noted; RuntimeError without."""
    meta = node.meta.get("tensor_meta")
    if not isinstance(meta, TensorMetadata):
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run:"
            " ShapeProp(module).propagate(*examples)."
        )
    return meta


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """Return the sizes of one node, of which shape propagation must know the shape."""
    parameters = 0
    if node.op == "call_module":
        module = dict(fx_module.named_modules())[str(node.target)]
        parameters = sum(p.numel() * p.element_size() for p in [*module.parameters(), *module.buffers()])
    meta = get_tensor_meta(node)
    size = meta.dtype.itemsize
    for length in meta.shape:
        size *= length
    return size_bytes(size, size + parameters)
