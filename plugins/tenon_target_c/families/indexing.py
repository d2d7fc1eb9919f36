"""Look-ups by index: embedding, gather, advanced indexing along one axis, one-hot rows.

An index outside of its range ends the run with an error; nothing is read or written there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenon.extend import Node, Ref
from tenon.ops.scatter_extreme import extreme_identity
from tenon_target_c.emitters import emits
from tenon_target_c.families.elementwise import Loop, fill
from tenon_target_c.families.products import FLOATS, NUMBERS
from tenon_target_c.program import Program, out
from tenon_target_c.values import SUFFIXES, View, reserve


def indices(program: Program, ref: Ref | View) -> View:
    """Return an index array in C order, as int64."""
    view = ref if isinstance(ref, View) else program.view(ref)
    if view.dtype == np.int64:
        return program.dense(view)
    return program.copy(view, reserve("arena", view.shape, np.dtype(np.int64)))


@emits("embedding", when=lambda node: node.args[1].aval.dtype.kind in "iu")
def emit_embedding(program: Program, node: Node) -> None:
    """Copy rows of the table."""
    weight, index = program.dense(node.args[0]), indices(program, node.args[1])
    _look_up(program, weight, index, program.new(node))


@emits("embedding_rows", when=lambda node: _plain_rows(node))
def emit_rows(program: Program, node: Node) -> None:
    """Copy rows of the table, zeros for the padding."""
    index, target = indices(program, node.args[1]), program.new(node)
    _look_up(program, program.dense(node.args[0]), index, target)
    padding = node.attrs.get("padding_idx", -1)
    if padding >= 0 and target.size:
        column = index.moved(index.array[..., None])
        loop = Loop(program, target, [target, column])
        loop.emit([], f"x1 == INT64_C({padding}) ? 0 : x0", [], "each")


def _plain_rows(node: Node) -> bool:
    return not node.attrs.get("by_frequency") and node.args[1].aval.dtype.kind in "iu"


def _look_up(program: Program, table: View, index: View, target: View) -> None:
    if index.size and target.size:
        width = math.prod(table.shape[1:]) * table.array.itemsize
        program.step("k_look_up", index.size, table.shape[0], width, table, index, out(target), fallible=True)


def _has_integer_indices(node: Node) -> bool:
    return all(a.aval.dtype.kind in "iu" for a in node.args[node.op.inputs.index("*indices") :])


def places(
    program: Program, shape: tuple[int, ...], given: Sequence[Ref], layout: Sequence[object]
) -> Places:
    """Add what joins index arrays along the axes that ``layout`` states; see ``Places``."""
    axes = [a for a, k in enumerate(layout) if not isinstance(k, slice)]
    views = [program.view(r) for r in given]
    arrays = np.broadcast_shapes(*(v.shape for v in views))
    rest = [a for a in range(len(shape)) if a not in axes]
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    joined = reserve("arena", arrays, np.dtype(np.int64))
    fill(program, joined, 0)
    for axis, view in zip(axes, views, strict=True):
        if joined.size:
            spread = indices(program, view.moved(np.broadcast_to(view.array, arrays)))
            program.step("k_join_index", joined.size, shape[axis], spread, out(joined), fallible=True)
    return Places(joined, (*axes, *rest), len(axes), first)


@dataclass(frozen=True, slots=True)
class Places:
    """Places among the indexed axes, for an array whose axes were brought in ``order``: the indexed ones are
    its first ``count``. In the result of an indexing, those of ``index`` begin at ``first``."""

    index: View
    order: tuple[int, ...]
    count: int
    first: int

    def indexed_first(self, array: np.ndarray) -> np.ndarray:
        """Move the axes of the index to the front of an indexing's result."""
        lead = len(self.index.shape)
        return np.moveaxis(array, range(self.first, self.first + lead), range(lead))


@emits("take", when=_has_integer_indices)
def emit_take(program: Program, node: Node) -> None:
    """Copy the elements at index arrays along some axes, which are moved to the front."""
    x, target = program.view(node.args[0]), program.new(node)
    found = places(program, x.shape, node.args[1:], node.attrs["layout"])
    moved = program.dense(x.moved(x.array.transpose(found.order)))
    table = moved.reshaped(math.prod(moved.shape[: found.count]), *moved.shape[found.count :])
    turned = target.moved(found.indexed_first(target.array))
    if turned.dense:
        _look_up(program, table, found.index, turned)
        return
    result = reserve("arena", turned.shape, x.dtype)
    _look_up(program, table, found.index, result)
    program.copy(result, turned)


def _supports_put(node: Node) -> bool:
    return _has_integer_indices(node) and (
        not node.attrs.get("accumulate") or node.avals[0].dtype.name in NUMBERS
    )


def number_or_view(program: Program, value: object, dtype: np.dtype) -> View:
    """Return the view of a value, of ``dtype``; a number is written to memory."""
    if value.__class__ is Ref and not value.scalar:
        view = program.view(value)
        return view if view.dtype == dtype else program.copy(view, reserve("arena", view.shape, dtype))
    view = reserve("arena", (), dtype)
    if value.__class__ is Ref:
        Loop(program, view, []).emit([], f"({view.ctype})s0", [program.scalars[value]], "fill")
    else:
        fill(program, view, value)  # type: ignore[arg-type]
    return view


@emits("put", when=_supports_put)
def emit_put(program: Program, node: Node) -> None:
    """Write rows to index arrays along some axes, or add them up there."""
    x, y = program.view(node.args[0]), number_or_view(program, node.args[1], node.avals[0].dtype)
    target = program.new(node)
    found = places(program, x.shape, node.args[2:], node.attrs["layout"])
    turned = x.array.transpose(found.order)
    kept = [s for a, s in enumerate(x.shape) if a in found.order[found.count :]]
    shape = (*kept[: found.first], *found.index.shape, *kept[found.first :])
    rows = program.dense(y.moved(found.indexed_first(np.broadcast_to(y.array, shape))))
    place = target.moved(target.array.transpose(found.order))
    table = program.copy(x.moved(turned), place if place.dense else None)
    width = math.prod(table.shape[found.count :])
    if rows.size and node.attrs.get("accumulate"):
        kernel = f"k_add_rows_{SUFFIXES[x.dtype.name]}"
        program.step(kernel, found.index.size, width, rows, found.index, out(table))
    elif rows.size:
        program.step(
            "k_put_rows", found.index.size, width * table.array.itemsize, rows, found.index, out(table)
        )
    if not place.dense:
        program.copy(table, place)


@emits("place")
def emit_place(program: Program, node: Node) -> None:
    """Copy, then overwrite the part at a basic index."""
    x, y = program.view(node.args[0]), program.view(node.args[1])
    target = program.copy(x, program.new(node))
    part = target.array[node.attrs["key"]]
    if part.size:
        program.copy(y, target.moved(part))


def along(program: Program, x: View, index: View, axis: int) -> tuple[View, tuple[int, int, int, int]]:
    """Return the part of ``x`` that ``index`` covers beside ``axis``, and the sizes of a kernel."""
    if x.shape:
        window = tuple(slice(None) if a == axis else slice(0, s) for a, s in enumerate(index.shape))
        x = x.moved(x.array[window])
    shape = x.shape or (1,)
    count = (index.shape or (1,))[axis]
    return x, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]), count)


@emits("gather")
def emit_gather(program: Program, node: Node) -> None:
    """Gather elements along an axis by an index of the same rank."""
    x, index, target = program.view(node.args[0]), indices(program, node.args[1]), program.new(node)
    if target.size:
        part, sizes = along(program, x, index, node.attrs["axis"])
        kernel = f"k_gather_{SUFFIXES[x.dtype.name]}"
        program.step(kernel, *sizes, program.dense(part), index, out(target), fallible=True)


_WAYS = {None: 0, "add": 1, "multiply": 2, "amax": 3, "amin": 4}


@emits("scatter", "scatter_prod", "scatter_extreme", when=lambda node: node.avals[0].dtype.name in NUMBERS)
def emit_scatter(program: Program, node: Node) -> None:
    """Write elements along an axis at an index of the same rank, or combine them with those there."""
    target = program.copy(program.view(node.args[0]), program.new(node))
    index, dtype = indices(program, node.args[1]), target.dtype
    y = number_or_view(program, node.args[2], dtype)
    if not index.size or not target.size:
        return
    values = y.array[tuple(slice(0, s) for s in index.shape)] if y.shape else y.array
    given = program.dense(y.moved(np.broadcast_to(values, index.shape)))
    part, sizes = along(program, target, index, node.attrs["axis"])
    table = program.dense(part)
    kernel = f"k_scatter_{SUFFIXES[dtype.name]}"
    how = _WAYS["multiply" if node.name == "scatter_prod" else node.attrs.get("reduce")]
    if not node.attrs.get("include_self", True):
        least = reserve("arena", index.shape, dtype)
        fill(program, least, extreme_identity(dtype, node.attrs["reduce"]))
        program.step(kernel, *sizes, least, index, 0, out(table), fallible=True)
    program.step(kernel, *sizes, given, index, how, out(table), fallible=True)
    if table is not part:
        program.copy(table, part)


@emits("embedding_grad", when=lambda node: node.avals[0].dtype.name in FLOATS and _plain_rows(node))
def emit_embedding_gradient(program: Program, node: Node) -> None:
    """Sum rows of the gradient by index."""
    g, index, target = program.dense(node.args[0]), indices(program, node.args[1]), program.new(node)
    if target.size:
        rows, n = target.shape
        program.step(
            f"k_embedding_gradient_{SUFFIXES[g.dtype.name]}", index.size, rows, n, g, index,
            node.attrs.get("padding_idx", -1), out(target), fallible=True,
        )  # fmt: skip
