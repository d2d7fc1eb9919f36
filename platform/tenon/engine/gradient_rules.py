"""Run the gradient rules of a node: on arrays, or on tensors, so that the gradients are differentiable.

``Sweep.visit_plain`` has a faster form of ``on_arrays`` for the common case. Tensors are needed for
``create_graph``, and while an interceptor observes ops. The rule of a node with residuals works on arrays
only; a differentiable gradient is derived from the parts of its composite instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tenon.engine.accumulate import DESTINATION, GradientDestination
from tenon.engine.grad_mode import MODE
from tenon.engine.op import Composite, table
from tenon.engine.tape import LEAF, Edges, Node
from tenon.engine.types import Arguments, Gradient, Operand, OpFunction, OpNamespace
from tenon.engine.value import Value
from tenon.errors import GradError

#: One rule per input; None for an input without gradient.
Rules: TypeAlias = tuple[OpFunction | None, ...]


def on_arrays(node: Node, edges: Edges, grad: Gradient, accumulates: bool) -> list[Gradient]:
    """Gradients of an op's inputs as arrays; None for edges that are None and inputs without gradient.

    ``accumulates``: gradients of leaves go to ``leaf.grad``, and may be computed in its destination.
    """
    node.check()
    op, f = node.op, node.backend.raw
    if op.outputs != 1:
        grad = defined(f, node, grad)
    elif grad.dtype.itemsize == 2:
        f = node.backend.short_raw
    args, out = node.args, node.out
    if node.packed is not None or node.overwritten():
        arguments, output = node.values()
        args = [a.raw if isinstance(a, Value) else a for a in arguments]
        out = None if output is None else output.raw
    residuals = node.unpacked_residuals() if op.residuals else ()
    return _apply(f, node, edges, grad, out, args, residuals, accumulates)


def on_tensors(node: Node, edges: Edges, grad: Gradient, create_graph: bool) -> list[Gradient]:
    """``on_arrays`` for tensors. Rules run in the dtypes of the forward op, inside an autocast region too."""
    casts, MODE.casts = MODE.casts, None
    try:
        op = node.op
        if op.outputs != 1:
            grad = defined(table, node, grad)
        args, out = node.values()
        if create_graph:
            _refuse_detached(node)
        else:
            args = [a.detach() if isinstance(a, Value) and a._track else a for a in args]
        if op.residuals and create_graph and isinstance(op, Composite):
            return _through_parts(node, edges, grad, args)
        residuals = _residuals(node) if op.residuals and not (create_graph and op.remakes) else ()
        return _apply(table, node, edges, grad, out, args, residuals)
    finally:
        MODE.casts = casts


def _apply(
    f: OpNamespace,
    node: Node,
    edges: Edges,
    grad: Gradient,
    out: Operand | None,
    args: Sequence[Operand],
    residuals: Arguments,
    accumulates: bool = False,
) -> list[Gradient]:
    op = node.op
    if op.joint is not None:
        needs = tuple(e is not None for e in edges)
        extra = {"residuals": residuals} if op.residuals else {}
        return list(op.joint(f, grad, out, *args, needs=needs, **extra, **node.attrs))
    results: list[Gradient] = []
    for edge, rule in zip(edges, rule_per_input(op.rules, edges), strict=True):
        if edge is None or rule is None:
            results.append(None)
        else:
            ops = ops_into(edge[0], f) if accumulates and edge[1] == LEAF else f
            results.append(rule(ops, grad, out, *args, **node.attrs))
    return results


def ops_into(leaf: Value, f: OpNamespace) -> OpNamespace:
    """The namespace for the rule of a leaf's gradient: its ops may write into the leaf's destination."""
    destination: GradientDestination | None = leaf.__dict__.get(DESTINATION)
    return f if destination is None or leaf._grad is not None else destination.ops(f)


def rule_per_input(rules: Rules, edges: Edges) -> Rules:
    """``rules``, with the last one repeated for the rest of a variadic op's inputs."""
    return rules + (rules[-1],) * (len(edges) - len(rules))


def defined(f: OpNamespace, node: Node, grads: Gradient) -> Gradient:
    """The gradients of ``node``'s outputs, with zeros for outputs that received none."""
    missing = [g is None for g in grads]
    if True not in missing:
        return grads
    like = grads[missing.index(False)]
    return [
        f.new_full(like, shape=a.shape, value=0, dtype=a.dtype) if g is None else g
        for g, a in zip(grads, node.output_avals, strict=True)
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


def _through_parts(node: Node, edges: Edges, grad: Gradient, args: Sequence[Operand]) -> list[Gradient]:
    """Compute the outputs once more by the parts of the node's op, and differentiate these."""
    from tenon.engine.backward import collect_gradients

    MODE.enabled = True
    inputs = [a if e is None else table.alias(a) for a, e in zip(args, edges, strict=True)]
    outputs = node.op.decompose(table, *inputs, **node.attrs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    grads = grad if isinstance(grad, (list, tuple)) else (grad,)
    pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
    gradients = collect_gradients(
        [o for o, _ in pairs],
        [g for _, g in pairs],
        [i for i, e in zip(inputs, edges, strict=True) if e is not None],
        keep_graph=True,
        create_graph=True,
    )
    results = iter(gradients)
    return [None if e is None else next(results) for e in edges]
