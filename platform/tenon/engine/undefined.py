"""Undefined gradients: a custom Function returned None for an input that requires grad.

torch still visits the nodes behind it. An op propagates the None; a Function receives zeros, or None with
``set_materialize_grads(False)``. So Functions always run, and hooks on nodes are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon.engine.hooks import run_tensor_hooks
from tenon.engine.tape import CustomNode, Node
from tenon.engine.types import Gradient
from tenon.engine.value import Value

if TYPE_CHECKING:
    from tenon.engine.sweep import Sweep


def send_nothing(sweep: Sweep, edge: tuple[Any, int]) -> None:
    """Schedule a visit of the node at ``edge``, even if no gradient reaches it."""
    target, index = edge
    if index < 0 or target in sweep.pending or (sweep.needed is not None and id(target) not in sweep.needed):
        return
    sweep.undefined.add(target)
    sweep.wait(target, None if target.op.outputs == 1 else [None] * len(target.output_avals))


def visit_nothing(sweep: Sweep, node: Node) -> None:
    """Visit a node that no gradient has reached."""
    for hooks in (node.hooks or {}).values():
        run_tensor_hooks(hooks, None, node.backend)
    edges = node.edges if sweep.needed is None else sweep.open_edges(node.edges)
    results: list[Gradient] = [None] * len(edges)
    if isinstance(node, CustomNode) and id(node) not in sweep.stops:
        gradients = node.apply_nothing(sweep.create_graph)
        results = [r if r is None or sweep.as_tensors else r.raw for r in gradients]
        if node.node_hooks is not None:
            outputs = None if node.op.outputs == 1 else [None] * len(node.output_avals)
            results = sweep.after(node, results, outputs)
    for edge, result in zip(edges, results, strict=True):
        if edge is not None:
            if result is None:
                send_nothing(sweep, edge)
            else:
                sweep.send(edge, result, False)


def zeros(node: Node) -> list[Value | None]:
    """Zeros for each output of ``node`` that is a tensor."""
    f = node.backend.raw
    return [
        None if a is None else Value.make(f.new_full(a, shape=a.shape, value=0, dtype=a.dtype), node.backend)
        for a in node.output_avals
    ]
