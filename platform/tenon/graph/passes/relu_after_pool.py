"""Apply ``relu`` after a maximum pooling instead of before: the same result, on fewer elements."""

from __future__ import annotations

import math

from tenon.engine.op import Kind, table
from tenon.graph.graph import Graph, Node, Ref


def relu_after_pool(graph: Graph) -> None:
    """Rewrite ``max_pool(relu(x))`` as ``relu(max_pool(x))`` if nothing else reads ``relu(x)``.

    ``max_pool_grad`` may read it too if its gradient is gated (``gate_before_unpool``): in a window where all
    of ``x`` is negative no element equals the pooled maximum 0, but the gradient sent there is zero.
    A ``relu`` of an elementwise op's result stays, as both fuse into one kernel.
    """
    users = graph.users()
    roots = set(graph.roots())
    for relu in graph.calls:
        pool = _pool(relu, users.get(relu.out(), ()))
        if pool is None or relu.out() in roots:
            continue
        x, out = relu.args[0], pool.out()
        unpoolings = [n for n in users[relu.out()] if n is not pool]
        if not all(_is_gated(n, relu.out(), out) for n in unpoolings):
            continue
        relu.op, relu.attrs, relu.avals, pool.op, pool.attrs = pool.op, pool.attrs, pool.avals, relu.op, {}
        relu.module, relu.where, pool.module, pool.where = pool.module, pool.where, relu.module, relu.where
        for unpooling in unpoolings:
            unpooling.args = (unpooling.args[0], x, out)


def _pool(relu: Node, users: list[Node] | tuple[()]) -> Node | None:
    """Return the only ``max_pool`` that reads ``relu``, if it should come first, or None."""
    x = relu.args[0] if relu.op.name == "relu" else None
    if x.__class__ is not Ref or (x.node.kind == "call" and x.node.op.kind is Kind.ELEMENTWISE):
        return None
    pools = [n for n in users if n.op is table["max_pool"]]
    if len(pools) != 1 or math.prod(pools[0].avals[0].shape) >= math.prod(x.aval.shape):
        return None
    return pools[0]


def _is_gated(unpooling: Node, x: Ref, out: Ref) -> bool:
    """Whether the incoming gradient of the ``max_pool_grad`` call is zero wherever ``out`` is."""
    if (
        unpooling.op.name != "max_pool_grad"
        or unpooling.args[1:] != (x, out)
        or unpooling.args[0].__class__ is not Ref
    ):
        return False
    gate = unpooling.args[0].node
    return gate.kind == "call" and gate.op.name == "relu_grad" and gate.args[1] == out
