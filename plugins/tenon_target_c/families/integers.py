"""Layers of 8-bit integers: products, convolutions and pooling, with exact sums."""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_c.emitters import emits
from tenon_target_c.expressions import literal
from tenon_target_c.families import convolution, pooling
from tenon_target_c.families.products import rounded
from tenon_target_c.program import Program, out, shape_text
from tenon_target_c.values import Pointer, View

_FLOAT = np.dtype(np.float32)


def _padded(program: Program, weight: Ref) -> View:
    """Return the rows of an int8 weight, each filled up to a multiple of 16."""
    known = program.known(weight)
    assert known is not None
    rows = known.reshape(len(known), math.prod(known.shape[1:]))
    wide = np.zeros((len(rows), rounded(rows.shape[1])), np.int8)
    wide[:, : rows.shape[1]] = rows
    return program.weight(wide)


def _is_constant(node: Node) -> bool:
    return node.args[1].node.kind in ("constant", "input")


def _prepared(program: Program, x: View, rows: int, k: int, node: Node) -> View:
    """Return the input as 16-bit integers without zero point, in rows filled up to a multiple of 16."""
    packed = program.scratch(rows * rounded(k), "int16")
    step, zero = literal(node.attrs["x_step"], _FLOAT), int(node.attrs["x_zero"])
    if x.dtype == np.uint8:
        program.step("k_int8_from_steps", rows, k, x, zero, out(packed))
    else:
        program.step("k_int8_from_float", rows, k, x, step, zero, out(packed))
    return packed


def _ends(target: View, node: Node) -> tuple[Pointer | str, Pointer | str, str, int]:
    """Return the pointers to the result as floats and as steps, and the step and zero of the latter."""
    step = node.attrs["out_step"]
    if step is None:
        return out(target), "NULL", "1.0f", 0
    return "NULL", out(target), literal(step, _FLOAT), int(node.attrs["out_zero"])


@emits("int8_linear", when=_is_constant)
def emit_linear(program: Program, node: Node) -> None:
    """Add a linear layer of calibrated integers."""
    x, weight, scale, bias = node.args
    view, target = program.dense(x), program.new(node)
    if not target.size:
        return
    k, count = view.shape[-1], target.shape[-1]
    rows = target.size // count
    packed = _prepared(program, view, rows, k, node)
    program.step(
        "k_int8_product", rows, count, rounded(k), packed, _padded(program, weight), program.dense(scale),
        program.dense(bias) if bias is not None else "NULL", literal(node.attrs["x_step"], _FLOAT),
        bool(node.attrs["relu"]), *_ends(target, node), count, 1,
    )  # fmt: skip


@emits("int8_dynamic_linear", when=_is_constant)
def emit_dynamic_linear(program: Program, node: Node) -> None:
    """Add a linear layer that quantizes its input by its largest magnitude."""
    x, weight, scale, bias = node.args
    view, target = program.dense(x), program.new(node)
    if not target.size:
        return
    k, count = view.shape[-1], target.shape[-1]
    rows = target.size // count
    program.step(
        "k_int8_dynamic_linear", rows, count, k, view, _padded(program, weight), program.dense(scale),
        program.dense(bias) if bias is not None else "NULL", out(target),
        out(program.scratch(rows * rounded(k), "int16")),
    )  # fmt: skip


@emits("int8_conv", when=lambda node: _is_constant(node) and len(node.attrs["stride"]) <= 3)
def emit_convolution(program: Program, node: Node) -> None:
    """Add a convolution of calibrated integers."""
    x, weight, scale, bias = node.args
    view, target = program.dense(x), program.new(node)
    if not target.size:
        return
    shape = tuple(weight.aval.shape)
    sizes = convolution.geometry(view.shape, target.shape, shape[2:], node)
    packed = _prepared(program, view.reshaped(1, view.size), 1, view.size, node)
    windows = program.scratch(64 * rounded(math.prod(shape[1:])), "int16")
    program.step(
        "k_int8_convolution", f"(const long[]){shape_text(sizes)}", packed, _padded(program, weight),
        program.dense(scale), program.dense(bias) if bias is not None else "NULL",
        literal(node.attrs["x_step"], _FLOAT), bool(node.attrs["relu"]), *_ends(target, node), out(windows),
    )  # fmt: skip


@emits("int8_max_pool")
def emit_max_pool(program: Program, node: Node) -> None:
    """Add the largest of each window."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step("k_int8_max_pool", pooling.geometry(x.shape, target.shape, node), x, out(target))
