"""Compute the sizes in bytes of the results and parameters of nodes, and replace the targets of calls."""

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
    """Replace the operation and target of all nodes with ``old_op`` and ``old_target``."""
    new, copies = Graph(), dict[Node, Node]()
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            args, kwargs = mapped(node.args, copies), mapped(node.kwargs, copies)
            copies[node] = new.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            copies[node] = new.node_copy(node, copies.__getitem__)
    fx_module.graph = new


class size_bytes(NamedTuple):
    """The number of bytes of a node's result, and that of the result and the node's parameters."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Tensor] | None = None) -> None:
    """Set ``size_bytes`` of every node but the output, after propagating shapes from the example ``args``."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        sized: Any = node  # any attribute may be set
        sized.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node: Node) -> TensorMetadata:
    """Return the metadata stored by shape propagation; RuntimeError if there is none."""
    meta = node.meta.get("tensor_meta")
    if not isinstance(meta, TensorMetadata):
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run:"
            " ShapeProp(module).propagate(*examples)."
        )
    return meta


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """Return the sizes of one node, whose shape must have been propagated."""
    parameters = 0
    if node.op == "call_module":
        module = dict(fx_module.named_modules())[str(node.target)]
        parameters = sum(p.numel() * p.element_size() for p in [*module.parameters(), *module.buffers()])
    meta = get_tensor_meta(node)
    size = meta.dtype.itemsize
    for length in meta.shape:
        size *= length
    return size_bytes(size, size + parameters)
