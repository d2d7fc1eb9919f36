"""Ops that move elements: views without cost, copies, or look-ups in a table of positions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tenon import Tensor, ops
from tenon.extend import Node, Primitive, wrap
from tenon.ops.spatial.axis_tables import Table
from tenon.ops.spatial.resampling import tables
from tenon_target_c.emitters import emits
from tenon_target_c.expressions import translate
from tenon_target_c.families.elementwise import Loop, fill
from tenon_target_c.families.products import FLOATS, NUMBERS
from tenon_target_c.program import Program, out
from tenon_target_c.values import SUFFIXES, reserve, supported


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
    """Copy each operand to its position."""
    target, axis, start = program.new(node), node.attrs["axis"], 0
    for ref in node.args:
        source = program.view(ref)
        stop = start + source.shape[axis]
        key = (slice(None),) * axis + (slice(start, stop),)
        program.copy(source, target.moved(target.array[key]))
        start = stop


@emits("stack")
def emit_stack(program: Program, node: Node) -> None:
    """Copy each operand to its position on a new axis."""
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
    """Fill with zeros, then copy to the positions of a basic index."""
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
    fill(program, program.new(node), node.attrs["value"], "value" in program.changing.get(node, ()))


@emits("zeros_like")
def emit_zeros(program: Program, node: Node) -> None:
    """Fill with zeros."""
    fill(program, program.new(node), 0)


@emits("roll")
def emit_roll(program: Program, node: Node) -> None:
    """Move elements cyclically along one axis after the other."""
    x, target = program.dense(node.args[0]), program.new(node)
    shifts, axes = (v if isinstance(v, tuple) else (v,) for v in (node.attrs["shifts"], node.attrs["axes"]))
    if not target.size:
        return
    if not axes:
        program.copy(x, target)
    for position, (shift, axis) in enumerate(zip(shifts, axes, strict=True)):
        result = target if position == len(axes) - 1 else reserve("arena", x.shape, x.dtype)
        rows, width = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
        suffix = SUFFIXES[x.dtype.name]
        program.step(f"k_roll_{suffix}", rows, x.shape[axis], width, shift, x, out(result))
        x = result


@emits("tril", "triu")
def emit_triangle(program: Program, node: Node) -> None:
    """Copy matrices, with zeros on one side of a diagonal."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        count, (rows, columns) = math.prod(x.shape[:-2]), x.shape[-2:]
        k, upper = node.attrs.get("k", 0), node.name == "triu"
        program.step(f"k_triangle_{SUFFIXES[x.dtype.name]}", count, rows, columns, k, upper, x, out(target))


def _has_distinct_addresses(node: Node) -> bool:
    """Whether no two elements of a strided view share an address."""
    shape, strides = node.attrs["base"][:2]
    places = sum(np.ix_(*(np.arange(n) * s for n, s in zip(shape, strides, strict=True))), np.zeros(1, int))
    return len(np.unique(places)) == math.prod(shape)


@emits("as_strided", "strided_read", when=_has_distinct_addresses)
@emits("diagonal_embed", "window_of", "unfold")
def emit_by_table(program: Program, node: Node) -> None:
    """Look up the position of each element in a constant table; -1 means zero.

    The table is computed by applying the op to the numbers 1, 2, 3, ...
    """
    x, target = program.dense(node.args[0]), program.new(node)
    if not target.size:
        return
    table = program.weight(_places(x.shape, lambda places: node.op(places, **node.attrs)))
    program.step(f"k_move_{SUFFIXES[x.dtype.name]}", target.size, x, table, out(target))


def _places(shape: tuple[int, ...], move: Callable[[Tensor], Tensor]) -> np.ndarray:
    """Return the flat source index of each element that ``move`` returns; -1 where it writes zeros."""
    numbers = np.arange(1, math.prod(shape) + 1, dtype=np.int64).reshape(shape)
    return np.asarray(move(wrap(numbers)).numpy()).astype(np.int32).reshape(-1) - 1


def _is_number(node: Node) -> bool:
    return node.avals[0].dtype.name in NUMBERS


def _move_back(program: Program, node: Node, move: Callable[[Tensor], Tensor]) -> None:
    """Add the gradient of ``move``: elements are added at the positions from which it takes them."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        table = program.weight(_places(target.shape, move))
        program.step(f"k_move_back_{SUFFIXES[x.dtype.name]}", x.size, target.size, x, table, out(target))


@emits("fold", when=_is_number)
def emit_fold(program: Program, node: Node) -> None:
    """Add patches into images (col2im)."""
    attrs = {k: v for k, v in node.attrs.items() if k != "sizes"}
    _move_back(program, node, lambda places: ops.unfold(places, **attrs))


@emits("fold_axis", when=_is_number)
def emit_fold_axis(program: Program, node: Node) -> None:
    """Add windows into an axis."""
    size = node.args[0].aval.shape[-1]
    axis, step = node.attrs["axis"], node.attrs["step"]
    _move_back(program, node, lambda places: ops.unfold_axis(places, axis=axis, size=size, step=step))


@emits("strided_sum", when=lambda node: _is_number(node) and _has_distinct_addresses(node))
def emit_strided_sum(program: Program, node: Node) -> None:
    """Add the elements of a strided view into the array that it views."""
    _move_back(program, node, lambda places: ops.strided_read(places, **node.attrs))


@emits("cross")
def emit_cross(program: Program, node: Node) -> None:
    """Add cross products along an axis of size 3."""
    x, y = (program.view(a) for a in node.args)
    target, axis = program.new(node), node.attrs["axis"]
    if not target.size:
        return
    a, b, parts = (np.moveaxis(v.array, axis, 0) for v in (x, y, target))
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        operands = [x.moved(a[j]), y.moved(b[k]), x.moved(a[k]), y.moved(b[j])]
        text = translate(
            "a * b - c * d", target.dtype, dict(zip("abcd", ("x0", "x1", "x2", "x3"), strict=True))
        )
        Loop(program, target.moved(parts[i]), operands).emit([], text, [], "cross")


def _tables(node: Node) -> list[tuple[int, Table]]:
    backward = node.name == "resample_grad"
    shape = (node.avals[0] if backward else node.args[0].aval).shape
    return tables(tuple(shape), node.attrs["plan"], node.avals[0].dtype, for_gradient=backward)


def _supports_resample(node: Node) -> bool:
    """Whether it is of floats, or copies elements."""
    dtype = node.avals[0].dtype.name
    return dtype in FLOATS or (dtype in SUFFIXES and all(t.weights is None for _, t in _tables(node)))


@emits("resample", "resample_grad", when=_supports_resample)
def emit_resample(program: Program, node: Node) -> None:
    """Add interpolation, or padding by existing elements, axis by axis; or its transpose."""
    x, target = program.dense(node.args[0]), program.new(node)
    if not target.size:
        return
    steps = _tables(node)
    if not steps:
        program.copy(x, target)
    for position, (axis, table) in enumerate(steps):
        starts, places, weights = table
        rows = len(starts) - 1
        sizes = (*x.shape[:axis], rows, *x.shape[axis + 1 :])
        result = target if position == len(steps) - 1 else reserve("arena", sizes, x.dtype)
        dtype = np.dtype(np.uint8) if x.dtype == bool else x.dtype
        factors = np.ones(len(places)) if weights is None else weights
        program.step(
            f"k_resample_{SUFFIXES[x.dtype.name]}", math.prod(x.shape[:axis]), x.shape[axis],
            math.prod(x.shape[axis + 1 :]), rows, x, program.weight(np.asarray(starts, np.int32)),
            program.weight(np.asarray(places, np.int32)), program.weight(np.asarray(factors, dtype)),
            out(result),
        )  # fmt: skip
        x = result
