"""Ops that work row by row: softmax and its logarithm, layer norm, attention."""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Node
from tenon_target_c.emitters import emits
from tenon_target_c.expressions import literal
from tenon_target_c.families.products import DEPTH, batch_strides, is_float32, rounded
from tenon_target_c.program import Program, out, shape_text
from tenon_target_c.values import Pointer, View

#: Queries of a block: see ``kernels/attention.c``.
QUERIES = 48


def _along_last(program: Program, view: View, axis: int) -> View:
    """Return the elements with ``axis`` last, in C order."""
    return program.dense(view.moved(view.array.swapaxes(axis, -1)) if view.array.ndim else view)


def _emit_rows(program: Program, node: Node, kernel: str, *more: int) -> None:
    """Add a kernel over the rows along ``axis``, moving the axis to the end and back if necessary."""
    x = program.view(node.args[0])
    axis = node.attrs["axis"] % max(x.array.ndim, 1)
    target = program.new(node)
    if not target.size:
        return
    n = x.shape[axis] if x.shape else 1
    last = not x.shape or axis == x.array.ndim - 1
    moved = _along_last(program, x, axis)
    result = target if last else program.scratch(target.size).reshaped(*moved.shape)
    program.step(kernel, target.size // n, n, moved, *more, out(result))
    if not last:
        program.copy(result.moved(result.array.swapaxes(axis, -1)), target)


@emits("softmax", when=is_float32)
def emit_softmax(program: Program, node: Node) -> None:
    """Add a softmax."""
    _emit_rows(program, node, "k_softmax", 0)


@emits("safe_softmax", when=is_float32)
def emit_safe_softmax(program: Program, node: Node) -> None:
    """Add a softmax that is 0 for rows of minus infinities."""
    _emit_rows(program, node, "k_softmax", 1)


@emits("log_softmax", when=is_float32)
def emit_log_softmax(program: Program, node: Node) -> None:
    """Add the logarithm of a softmax."""
    _emit_rows(program, node, "k_log_softmax")


@emits("layer_norm", when=is_float32)
def emit_layer_norm(program: Program, node: Node) -> None:
    """Add a normalisation of the last axes, and its statistics where the graph uses them."""
    x = program.dense(node.args[0])
    weight, bias = (program.dense(a) if a is not None else "NULL" for a in node.args[1:])
    targets = [program.new(node, i) for i in range(len(node.avals))]
    if not x.size:
        return
    n = math.prod(x.shape[len(x.shape) - node.attrs["rank"] :])
    statistics: list[Pointer | str] = [out(t) for t in targets[1:]] or ["NULL", "NULL"]
    epsilon = literal(node.attrs.get("eps", 1e-5), x.dtype)
    program.step("k_layer_norm", x.size // n, n, x, weight, bias, epsilon, out(targets[0]), *statistics)


def _supports_attention(node: Node) -> bool:
    return is_float32(node) and len(node.avals) == 1 and len(node.args[0].aval.shape) >= 2


@emits("attention", when=_supports_attention)
def emit_attention(program: Program, node: Node) -> None:
    """Add attention, in blocks of queries."""
    query, key, value = (program.view(a) for a in node.args[:3])
    target = program.new(node)
    if not target.size:
        return
    bias = program.view(node.args[3]) if node.args[3] is not None else None
    batch = target.shape[:-2]
    queries, keys = query.shape[-2], key.shape[-2]
    causal = bool(node.attrs.get("causal", False))
    given = None if causal or bias is None else _broadcast_bias(bias, batch, queries, keys)
    views = tuple(v for v in (query, key, value, target, given) if v is not None)
    found = batch_strides(views, batch)
    if found is None:
        query, key, value = (program.dense(v) for v in (query, key, value))
        given = program.dense(given) if given is not None else None
        views = tuple(v for v in (query, key, value, target, given) if v is not None)
        found = batch_strides(views, batch)
        assert found is not None
    sizes, strides = found
    width, breadth = query.shape[-1], value.shape[-1]
    numbers = [*sizes, queries, keys, width, breadth]
    for view, steps in zip(views, strides, strict=True):
        numbers += [*steps, *view.strides[-2:]]
    numbers += [0] * (26 - len(numbers))
    count = rounded(keys) * width + rounded(breadth) * keys + QUERIES * keys + QUERIES * DEPTH
    program.step(
        "k_attention", f"(const long[]){shape_text(numbers)}", query, key, value,
        given if given is not None else "NULL", literal(node.attrs["scale"], query.dtype), causal,
        not causal and bias is not None, out(target), out(program.scratch(count)),
    )  # fmt: skip


def _broadcast_bias(bias: View, batch: tuple[int, ...], queries: int, keys: int) -> View:
    return bias.moved(np.broadcast_to(bias.array, (*batch, queries, keys)))
