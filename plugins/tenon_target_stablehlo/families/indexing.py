"""Look-ups by index, their assignments, one-hot rows, sorting."""

from __future__ import annotations

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_stablehlo.builder import INT64, Builder, Value
from tenon_target_stablehlo.families.elementwise import wide
from tenon_target_stablehlo.forms import form, is_float, is_static
from tenon_target_stablehlo.lookups import COMBINED, counted, gather, grid, scatter, side_by_side, take
from tenon_target_stablehlo.sizes import Size, are_numbers, broadcast_shapes, is_number
from tenon_target_stablehlo.texts import type_text


@form("embedding")
def write_embedding(b: Builder, node: Node) -> Value:
    """Write ``gather`` of rows."""
    return take(b, b.value(node.args[0]), b.value(node.args[1]), 0)


@form("embedding_grad", when=lambda node: is_static(node) and is_float(node))
def write_embedding_gradient(b: Builder, node: Node) -> Value:
    """Add up the rows of the gradient by index."""
    own, a = node.avals[0].dtype, node.attrs
    g, index = b.value(node.args[0], wide(own)), b.value(node.args[1], INT64)
    count, width = int(np.prod(index.shape, dtype=np.int64)), g.shape[-1]
    index, g = b.reshape(index, (count,)), b.reshape(g, (count, width))
    places, rows = b.reshape(index, (count, 1)), node.avals[0].shape[0]
    if a.get("padding_idx", -1) >= 0:
        kept = b.compare("NE", index, b.full(a["padding_idx"], INT64, (count,)))
        g = b.select(b.broadcast(kept, g.shape, [0]), g, b.full(0, g.dtype, g.shape))
    if a.get("by_frequency"):
        ones, none = b.full(1, g.dtype, (count,)), b.full(0, g.dtype, (rows,))
        often = take(b, scatter(b, none, places, ones, [0], "add"), index, 0)
        g = b.binary("divide", g, b.broadcast(often, g.shape, [0]))
    zeros = b.full(0, g.dtype, (rows, width))
    return b.convert(scatter(b, zeros, places, g, [0], "add"), own)


def indexed_axes(node: Node) -> list[int]:
    """Return the axes at which the layout of advanced indexing has an index."""
    return [a for a, k in enumerate(node.attrs["layout"]) if not isinstance(k, slice)]


def _has_whole_slices(node: Node) -> bool:
    """Whether all slices of a layout take the whole axis, and all indices are integers."""
    indices = node.args[1:] if node.name == "take" else node.args[2:]
    integers = all(r.__class__ is Ref and r.aval.dtype.kind in "iu" for r in indices)
    return integers and all(k == slice(None) for k in node.attrs["layout"] if isinstance(k, slice))


def _places(b: Builder, x: Value, indices: list[Value], axes: list[int], shape: tuple[Size, ...]) -> Value:
    columns = [counted(b, i, x.shape[a]) for i, a in zip(indices, axes, strict=True)]
    return side_by_side(b, columns, shape)


@form("take", when=_has_whole_slices)
def write_take(b: Builder, node: Node) -> Value:
    """Write ``gather`` with all indices."""
    x, *indices = (b.value(a) for a in node.args)
    axes = indexed_axes(node)
    shape = broadcast_shapes(*(i.shape for i in indices))
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    return gather(b, x, _places(b, x, indices, axes, shape), axes, first)


@form("put", when=_has_whole_slices)
def write_put(b: Builder, node: Node) -> Value:
    """Write ``scatter`` of the values in the shape that a look-up would give."""
    x = b.value(node.args[0])
    y, *indices = (b.value(a) for a in node.args[1:])
    axes = indexed_axes(node)
    rest = [x.shape[a] for a in range(x.rank) if a not in axes]
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    shape = broadcast_shapes(*(i.shape for i in indices))
    count = len(shape)
    values = b.broadcast(b.convert(y, x.dtype), (*rest[:first], *shape, *rest[first:]))
    order = [*range(first, first + count), *range(first), *range(first + count, values.rank)]
    places = _places(b, x, indices, axes, shape)
    reduce = "add" if node.attrs.get("accumulate") else None
    return scatter(b, x, places, b.transpose(values, order), axes, reduce)


@form("gather")
def write_gather(b: Builder, node: Node) -> Value:
    """Write ``gather`` with an index for every axis."""
    x, index = (b.value(a) for a in node.args)
    if not x.rank or not index.rank:
        flat, places = b.reshape(x, (_count(x),)), b.reshape(index, (_count(index),))
        return b.reshape(take(b, flat, places, 0), node.avals[0].shape)
    places = side_by_side(b, grid(b, index, node.attrs["axis"]), index.shape)
    return gather(b, x, places, list(range(x.rank)), 0)


def _count(x: Value) -> int:
    return int(np.prod(x.shape, dtype=np.int64))


def _supports_scatter(node: Node) -> bool:
    return bool(
        node.attrs.get("include_self", True)
        and node.attrs.get("reduce") in (None, *COMBINED)
        and node.args[0].aval.shape
        and node.args[1].aval.shape
        and is_static(node)
    )


@form("scatter", "scatter_prod", "scatter_extreme", when=_supports_scatter)
def write_scatter(b: Builder, node: Node) -> Value:
    """Write ``scatter`` with an index for every axis."""
    x, index = b.value(node.args[0]), b.value(node.args[1])
    values = b.value(node.args[2], x.dtype)
    if values.rank:
        for axis, size in enumerate(index.shape):
            values = b.slice(values, axis, 0, size)
    values = b.broadcast(values, index.shape)
    reduce = "multiply" if node.name == "scatter_prod" else node.attrs.get("reduce")
    places = side_by_side(b, grid(b, index, node.attrs["axis"]), index.shape)
    return scatter(b, x, places, values, list(range(x.rank)), reduce)


@form("one_hot")
def write_one_hot(b: Builder, node: Node) -> Value:
    """Compare each index with all classes."""
    aval = node.avals[0]
    rank = len(aval.shape)
    index = b.broadcast(b.value(node.args[0], INT64), aval.shape, range(rank - 1))
    return b.convert(b.compare("EQ", b.iota(INT64, aval.shape, rank - 1), index), aval.dtype)


def _supports_sort(node: Node) -> bool:
    x = node.args[0].aval
    ends = [node.attrs.get("start", 0), node.attrs.get("stop") or 0]
    return bool(x.shape) and is_number(x.shape[node.attrs["axis"]]) and are_numbers(ends)


@form("argsort", when=_supports_sort)
def write_argsort(b: Builder, node: Node) -> Value:
    """Write a stable ``sort`` of the elements with their indices; NaN is the largest."""
    x, axis = b.value(node.args[0]), node.attrs["axis"]
    scalar, place = type_text(x.dtype, ()), type_text(INT64, ())
    kind = "FLOAT" if x.dtype.kind in "fV" else "UNSIGNED" if x.dtype.kind in "ub" else "SIGNED"
    first, second = ("%$b", "%$a") if node.attrs.get("descending") else ("%$a", "%$b")
    region = (
        f"^bb0(%$a: {scalar}, %$b: {scalar}, %$i: {place}, %$j: {place}): "
        f"%$less = {_compared('LT', first, second, kind, scalar)} "
    )
    if kind == "FLOAT":
        region += (
            f"%$left = {_compared('EQ', first, first, kind, scalar)} "
            f"%$right = {_compared('NE', second, second, kind, scalar)} "
            "%$apart = stablehlo.and %$left, %$right : tensor<i1> "
            "%$before = stablehlo.or %$less, %$apart : tensor<i1> stablehlo.return %$before : tensor<i1>"
        )
    else:
        region += "stablehlo.return %$less : tensor<i1>"
    places = b.iota(INT64, x.shape, axis)
    results = [(x.dtype, x.shape), (INT64, x.shape)]
    properties = f"dimension = {axis} : i64, is_stable = true"
    _, order = b.generic("sort", [x, places], properties, region, results)
    stop = node.attrs.get("stop")
    return order if stop is None else b.slice(order, axis, node.attrs.get("start", 0), stop)


def _compared(direction: str, one: str, other: str, kind: str, scalar: str) -> str:
    types = f"({scalar}, {scalar}) -> tensor<i1>"
    return f"stablehlo.compare {direction}, {one}, {other}, {kind} : {types}"
