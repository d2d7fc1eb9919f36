"""Sum a pooled gradient before it is spread over the windows, not after."""

from __future__ import annotations

from tenon.graph.graph import Graph, Ref


def sum_before_unpool(graph: Graph) -> None:
    """``sum(max_pool_grad(g, x, out), axes)`` becomes ``sum(g, axes)`` where ``axes`` has all that is pooled.

    Each window gives its gradient away once. It is the bias's of a convolution: a quarter of the elements
    (windows of 2 by 2).
    """
    for node in graph.calls:
        x = node.args[0] if node.op.name == "sum" else None
        if not isinstance(x, Ref) or x.node.kind != "call" or x.node.op.name != "max_pool_grad":
            continue
        spread = x.node
        rank = len(x.aval.shape)
        pooled = set(range(2, rank)) <= set(node.attrs["axes"])
        # A window with holes may see nothing but padding.
        if pooled and set(spread.attrs["dilation"]) == {1}:
            node.args = (spread.args[0], *node.args[1:])
