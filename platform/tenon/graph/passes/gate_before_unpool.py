"""Apply the gradient of a pooled ``relu`` before that of the pooling, on fewer elements."""

from __future__ import annotations

from tenon.engine.op import table
from tenon.graph.graph import Graph, Node, Ref


def gate_before_unpool(graph: Graph) -> None:
    """Rewrite ``relu_grad(max_pool_grad(g, x, out), x)`` as ``max_pool_grad(relu_grad(g, out), x, out)``.

    The gradient of a window goes to the element where ``x`` equals ``out``, so both have the same sign
    there. For windows of 2 by 2 ``relu_grad`` then reads a quarter of the elements, and ``x`` is last read
    by the call that computes its gradient, which can overwrite it.
    """
    users = graph.users()
    roots = set(graph.roots())
    for gate in graph.calls:
        unpooling = _unpooling(gate)
        if unpooling is None or len(users[unpooling.out()]) > 1 or unpooling.out() in roots:
            continue
        g, x, out = unpooling.args
        attrs, aval = unpooling.attrs, unpooling.avals
        unpooling.op, unpooling.args = table["relu_grad"], (g, out)
        unpooling.attrs, unpooling.avals = {}, (g.aval,)
        gate.op, gate.args, gate.attrs, gate.avals = (
            table["max_pool_grad"],
            (unpooling.out(), x, out),
            attrs,
            aval,
        )


def _unpooling(gate: Node) -> Node | None:
    """Return the ``max_pool_grad`` on whose result ``gate`` is the gradient of ``relu``, or None."""
    if gate.op.name != "relu_grad" or not all(a.__class__ is Ref for a in gate.args):
        return None
    unpooling, open_ = gate.args[0].node, gate.args[1]
    if unpooling.kind != "call" or unpooling.op.name != "max_pool_grad":
        return None
    if unpooling.args[1] != open_ or not all(a.__class__ is Ref for a in unpooling.args):
        return None
    return unpooling
