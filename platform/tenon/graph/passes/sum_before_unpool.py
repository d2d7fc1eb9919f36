"""Sum the gradient of a pooling before it is distributed over the windows."""

from __future__ import annotations

from tenon.graph.graph import Graph, Ref


def sum_before_unpool(graph: Graph) -> None:
    """Rewrite ``sum(max_pool_grad(g, x, out), axes)`` as ``sum(g, axes)`` if ``axes`` has all pooled axes.

    Each window passes its gradient on to one element. The sum is the gradient of a convolution's bias; for
    windows of 2 by 2 it then reads a quarter of the elements.
    """
    for node in graph.calls:
        x = node.args[0] if node.op.name == "sum" else None
        if not isinstance(x, Ref) or x.node.kind != "call" or x.node.op.name != "max_pool_grad":
            continue
        unpooling = x.node
        rank = len(x.aval.shape)
        pooled = set(range(2, rank)) <= set(node.attrs["axes"])
        # A dilated window may cover only padding.
        if pooled and set(unpooling.attrs["dilation"]) == {1}:
            node.args = (unpooling.args[0], *node.args[1:])
