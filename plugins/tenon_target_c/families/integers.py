"""Layers of 8-bit integers: products, convolutions and pooling, with exact sums."""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_c.emitters import emits
from tenon_target_c.expressions import literal
from tenon_target_c.families import convolution, pooling
from tenon_target_c.families.products import rounded
from tenon_target_c.families.recurrent import added, initial, sizes_of
from tenon_target_c.program import Program, out, shape_text
from tenon_target_c.values import Pointer, View

_FLOAT = np.dtype(np.float32)


def _padded(program: Program, weight: Ref) -> View:
    """Return the rows of an int8 weight, each padded to a multiple of 16."""
    known = program.known(weight)
    assert known is not None
    rows = known.reshape(len(known), math.prod(known.shape[1:]))
    wide = np.zeros((len(rows), rounded(rows.shape[1])), np.int8)
    wide[:, : rows.shape[1]] = rows
    return program.weight(wide)


def is_constant(weight: Ref) -> bool:
    """Whether no run changes a value."""
    node = weight.node
    return node.kind == "constant" or (node.kind == "input" and node.value is not None)


def _has_constant_weight(node: Node) -> bool:
    return is_constant(node.args[1])


def _prepared(program: Program, x: View, rows: int, k: int, node: Node) -> View:
    """Return the input as 16-bit integers without zero point, in rows padded to a multiple of 16."""
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


@emits("int8_linear", "int8_dynamic_linear", when=_has_constant_weight)
def emit_linear(program: Program, node: Node) -> None:
    """Add a linear layer of integers; a dynamic one quantizes its input by its largest magnitude."""
    x, weight, scale, bias = node.args
    view, target = program.dense(x), program.new(node)
    if not target.size:
        return
    k, count = view.shape[-1], target.shape[-1]
    rows = target.size // count
    if node.name == "int8_dynamic_linear":
        program.step(
            "k_int8_dynamic_linear", rows, count, k, view, _padded(program, weight), program.dense(scale),
            program.dense(bias) if bias is not None else "NULL", out(target),
            out(program.scratch(rows * rounded(k), "int16")),
        )  # fmt: skip
        return
    packed = _prepared(program, view, rows, k, node)
    program.step(
        "k_int8_product", rows, count, rounded(k), packed, _padded(program, weight), program.dense(scale),
        program.dense(bias) if bias is not None else "NULL", literal(node.attrs["x_step"], _FLOAT),
        bool(node.attrs["relu"]), *_ends(target, node), count, 1,
    )  # fmt: skip


@emits("int8_conv", when=lambda node: _has_constant_weight(node) and len(node.attrs["stride"]) <= 3)
def emit_convolution(program: Program, node: Node) -> None:
    """Add a convolution of statically quantized integers."""
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
    """Add the maximum of each window."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step("k_int8_max_pool", pooling.geometry(x.shape, target.shape, node), x, out(target))


def _has_constant_weights(node: Node) -> bool:
    first = len(node.args) - 6
    return all(is_constant(a) for a in (node.args[first], node.args[first + 2]))


_KINDS = {"int8_lstm_sequence": 0, "int8_gru_sequence": 1, "int8_rnn_sequence": 2}


@emits(*_KINDS, when=_has_constant_weights)
def emit_sequence(program: Program, node: Node) -> None:
    """Add a recurrent layer in one direction that quantizes inputs and states by their largest magnitude."""
    x, *states = node.args[:-6]
    w_ih, s_ih, w_hh, s_hh, b_ih, b_hh = node.args[-6:]
    kind, gru = _KINDS[node.name], node.name == "int8_gru_sequence"
    view, hidden = program.dense(x), states[0].aval.shape[1]
    count, k, gates = view.shape[0], view.shape[1], w_ih.aval.shape[0]
    inputs = program.scratch(count * gates)
    bias = b_ih if gru else added(program, b_ih, b_hh)
    program.step(
        "k_int8_dynamic_linear", count, gates, k, view, _padded(program, w_ih), program.dense(s_ih),
        program.dense(bias) if bias is not None else "NULL", out(inputs),
        out(program.scratch(count * rounded(k), "int16")),
    )  # fmt: skip
    target = program.new(node)
    first, *rest = [initial(program, node, i, s) for i, s in enumerate(states, 1)]
    relu = node.attrs.get("nonlinearity", "tanh") == "relu"
    program.step(
        "k_int8_sequence", *sizes_of(node), kind + relu, hidden, inputs, _padded(program, w_hh),
        program.dense(s_hh), program.dense(b_hh) if gru and b_hh is not None else "NULL", out(target),
        out(first), out(rest[0]) if rest else "NULL", out(program.scratch(node.attrs["sizes"][0] * gates)),
        out(program.scratch(rounded(hidden), "int16")),
    )  # fmt: skip
