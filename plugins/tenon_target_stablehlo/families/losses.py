"""Losses over classes, which lie on axis 1, or on the only axis: classes are compared with the target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_stablehlo.builder import INT64, Builder, Value
from tenon_target_stablehlo.families.elementwise import wide
from tenon_target_stablehlo.families.reductions import reduced
from tenon_target_stablehlo.forms import alone, form, is_float
from tenon_target_stablehlo.sizes import Size


def _classes(b: Builder, target: Value, shape: Sequence[Size], axis: int) -> Value:
    """Return whether each class is the target."""
    where = [a for a in range(len(shape)) if a != axis]
    return b.compare("EQ", b.iota(INT64, shape, axis), b.broadcast(target, shape, where))


def _weights(
    b: Builder, chosen: Value, present: Value, weight: Ref | None, axis: int, dtype: np.dtype
) -> Value:
    """Return the weight of each target, 0 where it is ignored."""
    if weight is None:
        return b.convert(present, dtype)
    wide_weight = b.broadcast(b.value(weight, dtype), chosen.shape, [axis])
    selected = b.select(chosen, wide_weight, b.full(0, dtype, chosen.shape))
    picked = reduced(b, "add", selected, [axis], 0)
    return b.select(present, picked, b.full(0, dtype, present.shape))


def _supports_loss(node: Node) -> bool:
    return is_float(node) and alone(node)


@form("nll_loss", when=_supports_loss)
def write_loss(b: Builder, node: Node) -> Value:
    """Select the log-probability of each target's class, and reduce."""
    own = node.avals[0].dtype
    x, target = b.value(node.args[0], wide(own)), b.value(node.args[1], INT64)
    axis, dtype = min(x.rank - 1, 1), x.dtype
    chosen = _classes(b, target, x.shape, axis)
    ignored = b.full(node.attrs.get("ignore_index", -100), INT64, target.shape)
    present = b.compare("NE", target, ignored)
    weights = _weights(b, chosen, present, node.args[2], axis, dtype)
    picked = reduced(b, "add", b.select(chosen, x, b.full(0, dtype, x.shape)), [axis], 0)
    product = b.unary("negate", b.binary("multiply", weights, picked))
    losses = b.select(present, product, b.full(0, dtype, product.shape))
    reduction = node.attrs.get("reduction", "mean")
    if reduction != "none":
        losses = reduced(b, "add", losses, range(losses.rank), 0)
    if reduction == "mean":
        losses = b.binary("divide", losses, reduced(b, "add", weights, range(weights.rank), 0))
    return b.convert(losses, own)


@form("nll_loss_grad", when=_supports_loss)
def write_loss_gradient(b: Builder, node: Node) -> Value:
    """Select the slope at each target's class."""
    own, shape = node.avals[0].dtype, node.avals[0].shape
    g, target = b.value(node.args[0], wide(own)), b.value(node.args[1], INT64)
    axis, dtype = min(len(shape) - 1, 1), g.dtype
    chosen = _classes(b, target, shape, axis)
    ignored = b.full(node.attrs.get("ignore_index", -100), INT64, target.shape)
    present = b.compare("NE", target, ignored)
    weights = _weights(b, chosen, present, node.args[2], axis, dtype)
    slope = b.unary("negate", g)
    if node.attrs.get("reduction", "mean") == "mean":
        total = reduced(b, "add", weights, range(weights.rank), 0)
        nothing = b.compare("EQ", total, b.full(0, dtype))
        slope = b.select(nothing, b.full(0, dtype), b.binary("divide", slope, total))
    slopes = b.binary("multiply", weights, b.broadcast(slope, weights.shape))
    where = [a for a in range(len(shape)) if a != axis]
    result = b.select(chosen, b.broadcast(slopes, shape, where), b.full(0, dtype, shape))
    return b.convert(result, own)
