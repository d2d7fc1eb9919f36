"""Layers of 8-bit integers between ``QuantizeLinear`` and ``DequantizeLinear`` (QDQ).

Runtimes fuse the three nodes of a layer into one integer node; without fusion they compute the same numbers
in floats. Calibrated activations are uint8 with a zero point, weights are int8 with a scale for each output.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_onnx.builder import FLOAT32, Builder, Step
from tenon_target_onnx.families.products import linear
from tenon_target_onnx.families.windows import geometry
from tenon_target_onnx.forms import form

_INT8, _UINT8, _INT32 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32)
#: Magnitudes below it count as 0: see ``tenon.ops.quantized``.
_SMALLEST = 1e-36
#: The number of steps in the bias of an output without weights.
_FINE = 1 << 20


def _input(b: Builder, node: Node) -> str:
    """Return the input as floats, quantized to steps."""
    x, step = node.args[0], b.constant(node.attrs["x_step"], FLOAT32)
    zero = b.constant(node.attrs["x_zero"], _UINT8)
    name = b.value(x)
    if x.aval.dtype != _UINT8:
        name = b.call("QuantizeLinear", name, step, zero)
    return b.call("DequantizeLinear", name, step, zero)


def _weight(b: Builder, weight: Ref, scale: str) -> str:
    """Return a weight as floats."""
    zeros = b.constant(np.zeros(weight.aval.shape[0]), _INT8)
    return b.call("DequantizeLinear", b.value(weight), scale, zeros, axis=0)


def _scale(b: Builder, node: Node) -> str:
    """Return the scales of a weight. Rows of zeros, whose scale means nothing, get one that fits the bias."""
    _, weight, scale, bias = node.args
    name = b.value(scale, FLOAT32)
    if bias is None:
        return name
    scales, rows, values = (b.known(n) for n in (name, b.value(weight), b.value(bias)))
    if scales is None or rows is None or values is None:
        return name
    empty = ~rows.reshape(len(rows), -1).any(1) & (values != 0)
    if not empty.any():
        return name
    fitting = np.abs(values.astype(np.float64)) / (np.float64(node.attrs["x_step"]) * _FINE)
    return b.initializer(np.where(empty, fitting, scales).astype(np.float32), f"{name}/filled")


def _bias(b: Builder, node: Node, scale: str) -> list[str]:
    """Return the bias: as 32-bit integers of the products' steps if they can hold it, as floats else."""
    bias = node.args[3]
    if bias is None:
        return []
    name = b.value(bias)
    scales, values = b.known(scale), b.known(name)
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
    x, weight, _, _ = node.args
    scale = _scale(b, node)
    bias = _bias(b, node, scale)
    name = linear(b, _input(b, node), len(x.aval.shape), _weight(b, weight, scale), bias[0] if bias else None)
    return _output(b, node, name)


@form("int8_conv")
def write_convolution(b: Builder, node: Node) -> str:
    """Write ``Conv`` of dequantized values."""
    weight, scale = node.args[1], _scale(b, node)
    inputs = [_input(b, node), _weight(b, weight, scale), *_bias(b, node, scale)]
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
    return linear(b, rows, len(x.aval.shape), _weight(b, weight, b.value(scale, FLOAT32)), shift)


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
    weight, scale = stored
    return _weight(b, weight, b.value(scale, FLOAT32))


def separate_weights(b: Builder) -> None:
    """Give each reader of an int8 weight a weight and zero points of its own.

    For processors without VNNI, onnxruntime rewrites these arrays, and does not load a model in which layers
    share them: layers of one width, tied weights, or a layer that is called twice.
    """
    readers = Counter(name for step in b.steps for name in step.inputs)
    used: set[str] = set()

    def own(name: str) -> str:
        array = b.known(name)
        if name in used and array is not None:
            name = b.initializer(array, f"{name}/copy")
        used.add(name)
        return name

    steps: list[Step] = []
    weights: dict[str, Step] = {}
    for step in b.steps:
        array = b.known(step.inputs[0]) if step.operator == "DequantizeLinear" else None
        if array is not None and array.dtype == _INT8:
            weight, scale, zero = step.inputs
            step = replace(step, inputs=(own(weight), scale, own(zero)))
            if readers[step.outputs[0]] > 1:
                weights[step.outputs[0]] = step
        inputs = list(step.inputs)
        for place, name in enumerate(inputs):
            if name in weights and f"read {name}" in used:
                weight, scale, zero = weights[name].inputs
                copy = replace(
                    weights[name], name=b.unique(weights[name].name), inputs=(own(weight), scale, own(zero)),
                    outputs=(b.unique(name),),
                )  # fmt: skip
                steps.append(copy)
                inputs[place] = copy.outputs[0]
            elif name in weights:
                used.add(f"read {name}")
        steps.append(replace(step, inputs=tuple(inputs)))
    b.steps[:] = steps
