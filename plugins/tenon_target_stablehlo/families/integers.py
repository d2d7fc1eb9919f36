"""Layers of 8-bit integers, with exact sums of 32 bits.

Activations are uint8 with a zero point and weights int8. Processors multiply int8 by int8, so 128 is
subtracted from the activations, and ``(128 - zero) * weight.sum()`` is added to the sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_stablehlo.builder import FLOAT32, INT32, Builder, Value
from tenon_target_stablehlo.families.products import dot
from tenon_target_stablehlo.families.reductions import reduced
from tenon_target_stablehlo.families.windows import convolved
from tenon_target_stablehlo.forms import form, is_float
from tenon_target_stablehlo.sizes import are_numbers

_INT8, _UINT8 = np.dtype(np.int8), np.dtype(np.uint8)
#: Magnitudes below it count as 0: see ``tenon.ops.quantized``.
_SMALLEST = 1e-36


def _rounded(b: Builder, x: Value, step: float, zero: int) -> Value:
    """Return the quantized values of ``x``, 0 to 255, as floats; of NaN 0, as in eager execution."""
    quotient = b.binary("divide", x, b.full(step, FLOAT32, x.shape))
    quotient = b.binary("add", quotient, b.full(zero, FLOAT32, x.shape))
    whole = b.unary("round_nearest_even", quotient)
    low, high = b.full(0, FLOAT32, x.shape), b.full(255, FLOAT32, x.shape)
    return b.binary("minimum", b.select(b.compare("GE", whole, low), whole, low), high)


def _lowered(b: Builder, node: Node) -> Value:
    """Return the input as int8: its quantized values minus 128."""
    x = b.value(node.args[0])
    if x.dtype == _UINT8:
        signed = b.convert(x, INT32)
        return b.convert(b.binary("subtract", signed, b.full(128, INT32, x.shape)), _INT8)
    steps = _rounded(b, b.convert(x, FLOAT32), node.attrs["x_step"], node.attrs["x_zero"])
    return b.convert(b.binary("subtract", steps, b.full(128, FLOAT32, x.shape)), _INT8)


def _with_zero(b: Builder, sums: Value, weight: Ref, zero: int, axis: int) -> Value:
    """Add the correction of the sums for the zero point, for each output along ``axis``."""
    if zero == 128:
        return sums
    stored = weight.node.value if weight.node.kind in ("constant", "input") else None
    if stored is not None:
        array = np.asarray(stored.detach().numpy() if hasattr(stored, "detach") else stored)
        totals = array.reshape(len(array), math.prod(array.shape[1:])).astype(np.int32).sum(1)
        share = b.constant(totals * np.int32(128 - zero), INT32)
    else:
        wide = b.value(weight, INT32)
        share = reduced(b, "add", wide, range(1, wide.rank), 0)
        share = b.binary("multiply", share, b.full(128 - zero, INT32, share.shape))
    return b.binary("add", sums, b.broadcast(share, sums.shape, [axis]))


def _scaled(b: Builder, sums: Value, scale: Value, bias: Any, axis: int) -> Value:  # an argument or None
    """Return ``sums * scale + bias``."""
    result = b.binary("multiply", b.convert(sums, FLOAT32), b.broadcast(scale, sums.shape, [axis]))
    if bias is None:
        return result
    return b.binary("add", result, b.broadcast(b.value(bias, FLOAT32), sums.shape, [axis]))


def _finished(b: Builder, node: Node, sums: Value, axis: int) -> Value:
    """Apply scales, bias and ReLU to exact sums, and quantize the result if ``out_step`` is set."""
    scale = b.value(node.args[2], FLOAT32)
    scale = b.binary("multiply", scale, b.full(node.attrs["x_step"], FLOAT32, scale.shape))
    result = _scaled(b, sums, scale, node.args[3], axis)
    if node.attrs["relu"]:
        result = b.binary("maximum", result, b.full(0, FLOAT32, result.shape))
    if node.attrs["out_step"] is None:
        return b.convert(result, node.avals[0].dtype)
    return b.convert(_rounded(b, result, node.attrs["out_step"], node.attrs["out_zero"]), _UINT8)


@form("int8_linear")
def write_linear(b: Builder, node: Node) -> Value:
    """Write ``dot_general`` of int8."""
    x, weight = _lowered(b, node), b.value(node.args[1])
    sums = dot(b, x, weight, ([x.rank - 1], [1]), dtype=INT32)
    sums = _with_zero(b, sums, node.args[1], int(node.attrs["x_zero"]), sums.rank - 1)
    return _finished(b, node, sums, sums.rank - 1)


@form("int8_conv", when=lambda node: are_numbers(node.args[0].aval.shape[1:]))
def write_convolution(b: Builder, node: Node) -> Value:
    """Write ``convolution`` of int8; padding represents 0."""
    a, zero = node.attrs, int(node.attrs["x_zero"])
    x, weight = _lowered(b, node), b.value(node.args[1])
    edge = [0, 0, *map(int, a["padding"])]
    x = b.pad(x, edge, edge, zero - 128)
    sums = convolved(
        b, x, weight, node.avals[0].shape, stride=a["stride"], dilation=a["dilation"], groups=a["groups"],
        padding=[(0, 0)] * len(a["stride"]), dtype=INT32,
    )  # fmt: skip
    return _finished(b, node, _with_zero(b, sums, node.args[1], zero, 1), 1)


@form("int8_dynamic_linear", when=is_float)
def write_dynamic_linear(b: Builder, node: Node) -> Value:
    """Quantize the input by its largest magnitude, then multiply integers."""
    x, weight = b.value(node.args[0], FLOAT32), b.value(node.args[1])
    size = reduced(b, "maximum", b.unary("abs", x), range(x.rank), 0)
    tiny = b.compare("LT", size, b.full(_SMALLEST, FLOAT32))
    finite = b.call("is_finite", size, dtype=np.dtype(np.bool_), shape=())
    one, nothing = b.full(1, FLOAT32), b.full(0, FLOAT32)
    usable = b.select(tiny, one, b.select(finite, size, one))
    factor = b.binary("divide", b.full(127, FLOAT32), usable)
    steps = b.unary("round_nearest_even", b.binary("multiply", x, b.broadcast(factor, x.shape)))
    steps = b.select(b.broadcast(finite, x.shape), steps, b.full(0, FLOAT32, x.shape))
    integers = b.convert(b.select(b.broadcast(tiny, x.shape), b.full(0, FLOAT32, x.shape), steps), _INT8)
    step = b.select(tiny, nothing, b.binary("divide", size, b.full(127, FLOAT32)))
    step = b.select(finite, step, b.full(math.nan, FLOAT32))
    sums = dot(b, integers, weight, ([x.rank - 1], [1]), dtype=INT32)
    scale = b.value(node.args[2], FLOAT32)
    scale = b.binary("multiply", scale, b.broadcast(step, scale.shape))
    return b.convert(_scaled(b, sums, scale, node.args[3], sums.rank - 1), node.avals[0].dtype)
