"""Remove calls that return an operand unchanged, and merge reshapes and transposes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.engine.op import table
from tenon.graph.graph import Graph, Node, NodeArgument, Ref
from tenon.ops.movement import Reshape

#: Number of elements up to which a constant is compared with 1.
_LARGEST = 1 << 12


def canonicalise(graph: Graph) -> None:
    """Replace copies, aliases, casts to the same dtype, sums over no axes and products with 1 by their
    operand, and merge reshapes of reshapes and transposes of transposes.

    Values never change in a graph, so a copy is the value itself. ``x + 0`` stays: it turns -0.0 into 0.0.
    """
    changes: dict[Ref, Ref] = {}
    for node in graph.calls:
        if changes:
            node.args = tuple(_final(a, changes) for a in node.args)
        simpler = _simpler(node)
        if simpler is not None:
            changes[node.out()] = simpler
    graph.replace(changes)
    graph.erase({ref.node for ref in changes})


def _final(value: NodeArgument, changes: dict[Ref, Ref]) -> NodeArgument:
    while value.__class__ is Ref and value in changes:
        value = changes[value]
    return value


def _simpler(node: Node) -> Ref | None:
    """Return a value equal to that of ``node``, or None; ``node`` itself may become another call."""
    rule = RULES.get(node.op.name)
    if rule is not None:
        return rule(node)
    if isinstance(node.op, Reshape):
        return _reshape(node)
    if node.phase == "detach":  # in traces: gradients stop here
        return None
    conjugates = node.op.name == "conj" and node.avals[0].dtype.kind == "c"
    return _operand(node) if node.op.identity and not conjugates else None


def _operand(node: Node) -> Ref | None:
    ref = node.args[0]
    return ref if ref.__class__ is Ref and not ref.scalar and ref.aval == node.avals[0] else None


def _reshape(node: Node) -> Ref | None:
    source = node.args[0]
    if source.node.kind == "call" and isinstance(source.node.op, Reshape):
        source = source.node.args[0]
        node.args = (source,)
    if node.op.name != "reshape":
        node.op = table["reshape"]
    node.attrs = {"shape": node.avals[0].shape}
    return _operand(node)


def _permutation(node: Node) -> tuple[int, ...]:
    if node.op.name == "permute":
        return tuple(a % len(node.avals[0].shape) for a in node.attrs["axes"])
    axes = list(range(len(node.avals[0].shape)))
    first, second = node.attrs["axis0"], node.attrs["axis1"]
    axes[first], axes[second] = axes[second], axes[first]
    return tuple(axes)


def _transpose(node: Node) -> Ref | None:
    source = node.args[0]
    order = _permutation(node)
    if source.node.kind == "call" and source.node.op.name in ("permute", "transpose"):
        inner = _permutation(source.node)
        order = tuple(inner[a] for a in order)
        source = source.node.args[0]
        node.op, node.args, node.attrs = table["permute"], (source,), {"axes": order}
    return source if order == tuple(range(len(order))) else None


def _copy(node: Node) -> Ref | None:
    """Replace ``copy(target, value)`` by the value in the shape and dtype of the target."""
    value, aval = node.args[1], node.avals[0]
    if value.__class__ is not Ref or value.scalar or value.aval.dtype.kind == "c":
        return None
    if value.aval == aval:
        return value
    if value.aval.shape == aval.shape:
        node.op, node.args, node.attrs = table["cast"], (value,), {"dtype": aval.dtype}
    elif value.aval.dtype == aval.dtype and len(value.aval.shape) <= len(aval.shape):
        node.op, node.args, node.attrs = table["expand"], (value,), {"shape": aval.shape}
    return None


def _mul(node: Node) -> Ref | None:
    """Return the other factor of a product with ones, with which the gradient of a loss begins."""
    for one, other in (node.args, node.args[::-1]):
        if other.__class__ is Ref and not other.scalar and other.aval == node.avals[0] and _is_one(one):
            return other
    return None


def _is_one(value: NodeArgument) -> bool:
    if value.__class__ is Ref:
        array = value.node.value
        return bool(value.node.kind == "constant" and array.size <= _LARGEST and np.all(array == 1))
    return value.__class__ in (int, float) and value == 1


RULES: dict[str, Callable[[Node], Ref | None]] = {
    "transpose": _transpose,
    "permute": _transpose,
    "copy": _copy,
    "mul": _mul,
}
