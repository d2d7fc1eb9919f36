"""Gate the gradient of a ``relu`` that is pooled before it is spread over the windows, not after."""

from __future__ import annotations

from tenon.engine.op import table
from tenon.graph.graph import Graph, Node, Ref


def gate_before_unpool(graph: Graph) -> None:
    """``relu_grad(max_pool_grad(g, x, out), x)`` becomes ``max_pool_grad(relu_grad(g, out), x, out)``.

    The gradient of a window goes to where ``x`` is ``out``, so that the gates agree. The gate then walks over
    a quarter of the elements (windows of 2 by 2), and ``x`` is last read where its gradient is made, in
    whose place it can be.
    """
    users = graph.users()
    roots = set(graph.roots())
    for gate in graph.calls:
        spread = _spread(gate)
        if spread is None or len(users[spread.out()]) > 1 or spread.out() in roots:
            continue
        g, x, out = spread.args
        attrs, aval = spread.attrs, spread.avals
        spread.op, spread.args, spread.attrs, spread.avals = table["relu_grad"], (g, out), {}, (g.aval,)
        gate.op, gate.args, gate.attrs, gate.avals = (
            table["max_pool_grad"],
            (spread.out(), x, out),
            attrs,
            aval,
        )


def _spread(gate: Node) -> Node | None:
    """The ``max_pool_grad`` whose result ``gate`` passes on where its own ``x`` is positive."""
    if gate.op.name != "relu_grad" or not all(a.__class__ is Ref for a in gate.args):
        return None
    spread, open_ = gate.args[0].node, gate.args[1]
    if spread.kind != "call" or spread.op.name != "max_pool_grad":
        return None
    return spread if spread.args[1] == open_ and all(a.__class__ is Ref for a in spread.args) else None
