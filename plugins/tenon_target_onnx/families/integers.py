"""Layers of 8-bit integers between ``QuantizeLinear`` and ``DequantizeLinear`` (QDQ).

Runtimes fuse the three nodes of a layer into one integer node; without fusion they compute the same numbers
in floats. Calibrated activations are uint8 with a zero point, weights are int8 with a scale for each output.
"""

from __future__ import annotations

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_onnx.builder import FLOAT32, Builder
from tenon_target_onnx.families.products import linear
from tenon_target_onnx.families.windows import geometry
from tenon_target_onnx.forms import form

_INT8, _UINT8, _INT32 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32)
#: Magnitudes below it count as 0: see ``tenon.ops.quantized``.
_SMALLEST = 1e-36


def _input(b: Builder, node: Node) -> str:
    """Return the input as floats, quantized to steps."""
    x, step = node.args[0], b.constant(node.attrs["x_step"], FLOAT32)
    zero = b.constant(node.attrs["x_zero"], _UINT8)
    name = b.value(x)
    if x.aval.dtype != _UINT8:
        name = b.call("QuantizeLinear", name, step, zero)
    return b.call("DequantizeLinear", name, step, zero)


def _weight(b: Builder, weight: Ref, scale: Ref) -> str:
    """Return a weight as floats."""
    zeros = b.constant(np.zeros(weight.aval.shape[0]), _INT8)
    return b.call("DequantizeLinear", b.value(weight), b.value(scale, FLOAT32), zeros, axis=0)


def _bias(b: Builder, node: Node) -> list[str]:
    """Return the bias: as 32-bit integers of the products' steps if they can hold it, as floats else."""
    scale, bias = node.args[2], node.args[3]
    if bias is None:
        return []
    name = b.value(bias)
    scales, values = b.known(b.value(scale)), b.known(name)
    if scales is None or values is None:
        return [name]
    steps = (scales.astype(np.float32) * np.float32(node.attrs["x_step"])).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        integers = np.rint(values.astype(np.float64) / steps)
    if not (np.isfinite(integers).all() and (np.abs(integers) < 2**31 - 1).all()):
        return [name]
    stored = b.initializer(integers.astype(np.int32), f"{name}/steps")
    factor = b.initializer(steps, f"{name}/step")
    zeros = b.constant(np.zeros(len(steps)), _INT32)
    return [b.call("DequantizeLinear", stored, factor, zeros, axis=0)]


def _output(b: Builder, node: Node, name: str) -> str:
    """Return the result, quantized if the call has an output scale."""
    name = b.call("Relu", name) if node.attrs["relu"] else name
    if node.attrs["out_step"] is None:
        return name
    step = b.constant(node.attrs["out_step"], FLOAT32)
    return b.call("QuantizeLinear", name, step, b.constant(node.attrs["out_zero"], _UINT8))


@form("int8_linear")
def write_linear(b: Builder, node: Node) -> str:
    """Write ``Gemm`` or ``MatMul`` of dequantized values."""
    x, weight, scale, _ = node.args
    bias = _bias(b, node)
    name = linear(b, _input(b, node), len(x.aval.shape), _weight(b, weight, scale), bias[0] if bias else None)
    return _output(b, node, name)


@form("int8_conv")
def write_convolution(b: Builder, node: Node) -> str:
    """Write ``Conv`` of dequantized values."""
    _, weight, scale, _ = node.args
    inputs = [_input(b, node), _weight(b, weight, scale), *_bias(b, node)]
    return _output(b, node, b.call("Conv", *inputs, **geometry(node, weight.aval.shape[2:])))


@form("int8_dynamic_linear", when=lambda node: node.avals[0].dtype == FLOAT32)
def write_dynamic_linear(b: Builder, node: Node) -> str:
    """Quantize the input by its largest magnitude, then multiply dequantized values."""
    x, weight, scale, bias = node.args
    name = b.value(x)
    flat = b.reshape(b.call("Abs", name), (-1,))
    size = b.call("ReduceMax", flat, keepdims=0)
    tiny = b.call("Less", size, b.constant(_SMALLEST, FLOAT32))
    step = b.call("Div", size, b.constant(127.0, FLOAT32))
    step = b.call("Where", tiny, b.constant(1.0, FLOAT32), step)
    zero = b.constant(0, _INT8)
    steps = b.call("QuantizeLinear", name, step, zero)
    rows = b.call("DequantizeLinear", steps, step, zero)
    shift = b.value(bias) if bias is not None else None
    return linear(b, rows, len(x.aval.shape), _weight(b, weight, scale), shift)


def _stored_weight(node: Node) -> tuple[Ref, Ref] | None:
    """Return weight and scales if a product decodes an int8 weight with a scale for each row."""
    left, right = node.args
    if (
        left.__class__ is not Ref
        or right.__class__ is not Ref
        or left.node.name != "cast"
        or left.node.kind != "call"
    ):
        return None
    stored, factor = left.node.args[0], right
    if right.node.kind == "call" and right.node.name in ("reshape", "view", "unsqueeze"):
        factor = right.node.args[0]
    rows = stored.aval.shape
    expected = (rows[0], *(1,) * (len(rows) - 1)) if rows else ()
    fits = stored.aval.dtype == _INT8 and len(rows) >= 2 and right.aval.shape == expected
    constant = stored.node.kind in ("input", "constant")
    if not (fits and constant and node.avals[0].dtype == FLOAT32 and factor.aval.shape == rows[:1]):
        return None
    return stored, factor


@form("mul", when=lambda node: _stored_weight(node) is not None)
def write_stored_weight(b: Builder, node: Node) -> str:
    """Write ``DequantizeLinear`` of a weight that is stored as int8 and used as floats."""
    stored = _stored_weight(node)
    assert stored is not None
    return _weight(b, *stored)
