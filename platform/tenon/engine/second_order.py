"""Run gradient rules on tensors: for ``create_graph``, and while an interceptor observes ops.

The rule of a node with residuals works on arrays only; for a differentiable gradient (``create_graph``), it
is derived from the composite's parts instead, which are differentiable to any order.
"""

from __future__ import annotations

from tenon.engine.grad_mode import MODE
from tenon.engine.op import Composite, table
from tenon.engine.tape import CustomNode, Edges, Node
from tenon.engine.types import Arguments, Gradient
from tenon.engine.value import Value
from tenon.errors import GradError


def gradients(node: Node, edges: Edges, grad: Gradient, create_graph: bool) -> list[Gradient]:
    """Gradients of ``node``'s inputs as tensors; None for edges that are None and inputs without gradient.

    Rules run in the dtypes of the forward op, also inside an autocast region.
    """
    if MODE.casts is None:
        return _by_rules(node, edges, grad, create_graph)
    call, MODE.casts = MODE.casts, None
    try:
        return _by_rules(node, edges, grad, create_graph)
    finally:
        MODE.casts = call


def apply(node: Node, grads: Arguments) -> Gradient:
    """Apply ``node`` to ``grads``, one per output; return a tensor (or None), or a tuple of them."""
    expected = len(node.output_avals or (None,))
    if len(grads) != expected:
        raise TypeError(f"expected {expected} arguments, got {len(grads)} instead, in {node.name()}")
    grad = grads[0] if node.op.outputs == 1 else list(grads)
    if isinstance(node, CustomNode):
        results = tuple(node.apply_tensors(grad, MODE.enabled))
    else:
        results = tuple(gradients(node, node.edges, grad, MODE.enabled))
    return results[0] if len(results) == 1 else results


def _by_rules(node: Node, edges: Edges, grad: Gradient, create_graph: bool) -> list[Gradient]:
    op = node.op
    if op.outputs != 1:
        grad = _materialize(node, grad)
    arguments, out = node.values()
    saved = tuple(arguments)
    if create_graph:
        _refuse_detached(node)
    else:
        saved = tuple(s.detach() if isinstance(s, Value) and s._track else s for s in saved)
    if op.residuals and create_graph and isinstance(op, Composite):
        return _through_parts(node, edges, grad, saved)
    if op.joint is not None:
        needs = tuple(e is not None for e in edges)
        extra = {}
        if op.residuals:
            extra["residuals"] = () if create_graph and op.remakes else _residuals(node)
        return list(op.joint(table, grad, out, *saved, needs=needs, **extra, **node.attrs))
    rules = (
        op.rules if len(op.rules) == len(edges) else op.rules + (op.rules[-1],) * (len(edges) - len(op.rules))
    )
    return [
        None if edge is None or rule is None else rule(table, grad, out, *saved, **node.attrs)
        for edge, rule in zip(edges, rules, strict=True)
    ]


def _refuse_detached(node: Node) -> None:
    """Raise GradError if a saved tensor was detached: the derivative of the gradient would be wrong."""
    for value, edge in zip(node.saved or (), node.edges, strict=False):
        if value is not None and edge is not None and edge[1] >= 0 and value._node is None:
            raise GradError(
                "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(). This is"
                f" not supported, please use out-of-place `.detach()` instead. (op {node.op.name}, shape"
                f" {list(value.raw.shape)})"
            )


def _residuals(node: Node) -> Arguments:
    """The residuals of ``node``, arrays among them as tensors."""
    kind = node.backend.array_type
    return tuple(Value.make(r, node.backend) if isinstance(r, kind) else r for r in node.unpacked_residuals())


def _materialize(node: Node, grads: Gradient) -> Gradient:
    like = next(g for g in grads if g is not None)
    return [
        table.new_full(like, shape=a.shape, value=0, dtype=a.dtype) if g is None else g
        for g, a in zip(grads, node.output_avals, strict=True)
    ]


def _through_parts(node: Node, edges: Edges, grad: Gradient, saved: Arguments) -> list[Gradient]:
    from tenon.engine.backward import collect_gradients

    wanted = [i for i, e in enumerate(edges) if e is not None]
    MODE.enabled = True
    aliases = list(saved)
    for i in wanted:
        aliases[i] = table.alias(saved[i])
    outputs = node.op.decompose(table, *aliases, **node.attrs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    grads = grad if isinstance(grad, (list, tuple)) else (grad,)
    pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
    gradients = collect_gradients(
        [o for o, _ in pairs],
        [g for _, g in pairs],
        [aliases[i] for i in wanted],
        keep_graph=True,
        create_graph=True,
    )
    result: list[Gradient] = [None] * len(edges)
    for i, g in zip(wanted, gradients, strict=True):
        result[i] = g
    return result
