"""Ops that move elements: views cost nothing, the others are copies, or look-ups in a table of places."""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Node, Primitive, wrap
from tenon.ops.spatial.resampling import tables
from tenon_target_c.emitters import emits
from tenon_target_c.families.elementwise import fill
from tenon_target_c.program import Program, out
from tenon_target_c.values import View, reserve, supported


def as_view(program: Program, node: Node) -> bool:
    """Make the outputs of a view op views of its first operand; return whether that was possible."""
    base = program.view(node.args[0])
    name = node.name
    if name in ("sum_to", "window_of") and tuple(node.avals[0].shape) != base.shape:
        return False
    if name in ("reshape", "view", "unsqueeze", "squeeze", "contiguous"):
        try:
            result = base.moved(base.array.reshape(node.avals[0].shape, copy=False))
        except ValueError:
            result = program.dense(base)
            result = result.moved(result.array.reshape(node.avals[0].shape))
        program.views[node.out()] = result if name != "contiguous" else program.dense(result)
        return True
    if any(not supported(a) for a in node.avals):
        return False
    assert isinstance(node.op, Primitive)
    moved = node.op.forward(np, base.array, **node.attrs)
    arrays = moved if isinstance(moved, tuple | list) else (moved,)
    for index, array in enumerate(arrays):
        program.views[node.out(index)] = base.moved(array)
    return True


@emits("cat")
def emit_cat(program: Program, node: Node) -> None:
    """Copy each operand to its place."""
    target, axis, start = program.new(node), node.attrs["axis"], 0
    for ref in node.args:
        source = program.view(ref)
        stop = start + source.shape[axis]
        key = (slice(None),) * axis + (slice(start, stop),)
        program.copy(source, target.moved(target.array[key]))
        start = stop


@emits("stack")
def emit_stack(program: Program, node: Node) -> None:
    """Copy each operand to its place on a new axis."""
    target, axis = program.new(node), node.attrs["axis"]
    for position, ref in enumerate(node.args):
        program.copy(program.view(ref), target.moved(target.array[(slice(None),) * axis + (position, ...)]))


@emits("pad")
def emit_pad(program: Program, node: Node) -> None:
    """Fill with the value, then copy the elements that stay."""
    x, target, widths = program.view(node.args[0]), program.new(node), node.attrs["widths"]
    fill(program, target, node.attrs.get("value", 0))
    inside = tuple(slice(max(a, 0), n - max(b, 0)) for (a, b), n in zip(widths, target.shape, strict=True))
    source = tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(widths, x.shape, strict=True))
    program.copy(x.moved(x.array[source]), target.moved(target.array[inside]))


@emits("embed")
def emit_embed(program: Program, node: Node) -> None:
    """Fill with zeros, then copy to the places of a basic index."""
    x, target = program.view(node.args[0]), program.new(node)
    fill(program, target, 0)
    place = target.array[node.attrs["key"]]
    if place.size:
        program.copy(x, target.moved(place))


@emits("flip")
def emit_flip(program: Program, node: Node) -> None:
    """Copy backwards along some axes."""
    x = program.view(node.args[0])
    program.copy(x.moved(np.flip(x.array, node.attrs["axes"])), program.new(node))


@emits("new_full")
def emit_full(program: Program, node: Node) -> None:
    """Fill with a number."""
    fill(program, program.new(node), node.attrs["value"])


@emits("zeros_like")
def emit_zeros(program: Program, node: Node) -> None:
    """Fill with zeros."""
    fill(program, program.new(node), 0)


@emits("roll", "tril", "triu", "diagonal_embed", "window_of", "as_strided", "strided_read", "unfold")
def emit_by_table(program: Program, node: Node) -> None:
    """Look up the place of each element in a constant table; -1 stands for zero.

    The table is what the op makes of the numbers 1, 2, 3, ...
    """
    x, target = program.dense(node.args[0]), program.new(node)
    if not target.size:
        return
    places = np.arange(1, x.size + 1, dtype=np.int64).reshape(x.shape)
    table = np.asarray(node.op(wrap(places), **node.attrs).numpy()).astype(np.int32).reshape(-1) - 1
    by_table(program, x, program.weight(table), target)


def by_table(program: Program, x: View, table: View, target: View) -> None:
    """Add a look-up of the elements of ``x`` at the places of ``table``."""
    kernel = {4: "k_move_4", 8: "k_move_8", 1: "k_move_1"}[x.dtype.itemsize]
    if x.dtype.name not in ("float32", "int64", "uint8", "bool"):
        raise NotImplementedError(f"a move of {x.dtype}")
    program.step(kernel, math.prod(target.shape), x, table, out(target))


@emits("resample", "resample_grad", when=lambda node: node.avals[0].dtype == np.float32)
def emit_resample(program: Program, node: Node) -> None:
    """Add interpolation, or padding by existing elements, axis by axis; or its transpose."""
    x, target = program.dense(node.args[0]), program.new(node)
    if not target.size:
        return
    backward = node.name == "resample_grad"
    shape = target.shape if backward else x.shape
    steps = tables(tuple(shape), node.attrs["plan"], target.dtype, for_gradient=backward)
    if not steps:
        program.copy(x, target)
    for position, (axis, table) in enumerate(steps):
        starts, places, weights = table
        rows = len(starts) - 1
        sizes = (*x.shape[:axis], rows, *x.shape[axis + 1 :])
        result = target if position == len(steps) - 1 else reserve("arena", sizes, x.dtype)
        factors = np.ones(len(places)) if weights is None else weights
        program.step(
            "k_resample", math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]), rows, x,
            program.weight(np.asarray(starts, np.int32)), program.weight(np.asarray(places, np.int32)),
            program.weight(np.asarray(factors, np.float32)), out(result),
        )  # fmt: skip
        x = result
