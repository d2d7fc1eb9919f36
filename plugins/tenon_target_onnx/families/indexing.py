"""Look-ups by index, their assignments, one-hot rows, sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Node
from tenon_target_onnx.builder import INT64, Builder
from tenon_target_onnx.forms import form
from tenon_target_onnx.sizes import Size, are_numbers, is_number


@form("embedding")
def write_embedding(b: Builder, node: Node) -> str:
    """Write ``Gather`` of rows."""
    return b.call("Gather", b.value(node.args[0]), b.value(node.args[1]), axis=0)


def indexed_axes(node: Node) -> list[int]:
    """Return the axes at which the layout of advanced indexing has an index."""
    return [a for a, k in enumerate(node.attrs["layout"]) if not isinstance(k, slice)]


@form("take")
def write_take(b: Builder, node: Node) -> str:
    """Write ``Gather`` for one index, ``GatherND`` for several."""
    x, indices, axes = node.args[0], node.args[1:], indexed_axes(node)
    if len(axes) == 1:
        return b.call("Gather", b.value(x), b.value(indices[0]), axis=axes[0])
    rank = len(x.aval.shape)
    rest = [a for a in range(rank) if a not in axes]
    moved = b.permuted(b.value(x), [*axes, *rest])
    count = len(node.avals[0].shape) - len(rest)
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    shape = node.avals[0].shape[first : first + count]
    gathered = b.call("GatherND", moved, _places(b, indices, shape))
    order = [*range(count, count + first), *range(count), *range(count + first, count + len(rest))]
    return b.permuted(gathered, order)


def _places(b: Builder, indices: Any, shape: tuple[Size, ...]) -> str:  # references
    """Return index arrays, broadcast to ``shape``, side by side on a last axis."""
    parts = []
    for index in indices:
        name = b.value(index, INT64)
        if index.aval.shape != shape:
            name = b.call("Expand", name, b.shape(shape))
        parts.append(b.unsqueezed(name, [len(shape)]))
    return parts[0] if len(parts) == 1 else b.call("Concat", *parts, axis=len(shape))


def _supports_put(node: Node) -> bool:
    return not node.attrs.get("accumulate") or node.avals[0].dtype.name in (
        "float32",
        "float64",
        "int64",
        "int32",
    )


@form("put", when=_supports_put, opset=18)
def write_put(b: Builder, node: Node) -> str:
    """Write ``ScatterND`` with the indexed axes in front."""
    x, y, *indices = node.args
    axes, rank = indexed_axes(node), len(x.aval.shape)
    rest = [a for a in range(rank) if a not in axes]
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    shape = _broadcast([i.aval.shape for i in indices])
    count = len(shape)
    sizes = [x.aval.shape[a] for a in rest]
    whole = (*sizes[:first], *shape, *sizes[first:])
    values = b.call("Expand", b.value(y, x.aval.dtype), b.shape(whole))
    values = b.permuted(
        values, [*range(first, first + count), *range(first), *range(first + count, len(whole))]
    )
    reduction = "add" if node.attrs.get("accumulate") else "none"
    order = [*axes, *rest]
    moved = b.permuted(b.value(x), order)
    result = b.call("ScatterND", moved, _places(b, indices, shape), values, reduction=reduction)
    return b.permuted(result, list(np.argsort(order)))


def _broadcast(shapes: list[tuple[Size, ...]]) -> tuple[Size, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return tuple(
        next((s for s in sizes if not (is_number(s) and s == 1)), 1) for sizes in zip(*padded, strict=True)
    )


def _window(b: Builder, name: str, own: tuple[Size, ...], target: tuple[Size, ...], but: int | None) -> str:
    """Return the corner of a value that has the sizes ``target``, except along the axis ``but``."""
    parts = [
        (axis, 0, int(size), 1)
        for axis, size in enumerate(target)
        if axis != but and is_number(size) and own[axis] != size
    ]
    return b.sliced(name, parts)


@form("gather")
def write_gather(b: Builder, node: Node) -> str:
    """Write ``GatherElements``."""
    x, index = node.args
    if not x.aval.shape or not index.aval.shape:
        flat = b.reshape(b.value(x), (-1,))
        return b.reshape(b.call("Gather", flat, b.value(index)), node.avals[0].shape)
    name = _window(b, b.value(x), x.aval.shape, index.aval.shape, node.attrs["axis"])
    return b.call("GatherElements", name, b.value(index), axis=node.attrs["axis"])


_REDUCTIONS = {None: "none", "add": "add", "multiply": "mul", "amax": "max", "amin": "min"}


def _supports_scatter(node: Node) -> bool:
    return (
        node.attrs.get("include_self", True)
        and bool(node.args[0].aval.shape)
        and bool(node.args[1].aval.shape)
    )


@form("scatter", "scatter_prod", "scatter_extreme", when=_supports_scatter, opset=18)
def write_scatter(b: Builder, node: Node) -> str:
    """Write ``ScatterElements``."""
    x, index, y = node.args
    dtype, shape = x.aval.dtype, index.aval.shape
    values = b.value(y, dtype)
    if getattr(getattr(y, "aval", None), "shape", ()):
        values = _window(b, values, y.aval.shape, shape, None)
    else:
        values = b.call("Expand", values, b.shape(shape))
    reduction = "mul" if node.name == "scatter_prod" else _REDUCTIONS[node.attrs.get("reduce")]
    return b.call(
        "ScatterElements", b.value(x), b.value(index), values, axis=node.attrs["axis"], reduction=reduction
    )


@form("place", when=lambda node: are_numbers(node.avals[0].shape))
def write_place(b: Builder, node: Node) -> str:
    """Write the elements at constant positions of the flattened value."""
    x, y = node.args
    shape = x.aval.shape
    count = math.prod(shape)
    places = np.arange(count, dtype=np.int64).reshape(shape)[node.attrs["key"]].reshape(-1)
    flat, values = b.reshape(b.value(x), (count,)), b.reshape(b.value(y, x.aval.dtype), (len(places),))
    return b.reshape(b.call("ScatterElements", flat, b.constant(places, INT64), values, axis=0), shape)


@form("one_hot")
def write_one_hot(b: Builder, node: Node) -> str:
    """Compare each index with all classes."""
    rank = len(node.avals[0].shape)
    index = b.unsqueezed(b.value(node.args[0], INT64), [rank - 1])
    classes = b.constant(np.arange(node.attrs["classes"], dtype=np.int64), INT64)
    return b.cast(b.call("Equal", index, classes), node.avals[0].dtype)


def _supports_sort(node: Node) -> bool:
    x = node.args[0].aval
    return bool(x.shape) and is_number(x.shape[node.attrs["axis"]])


@form("argsort", when=_supports_sort)
def write_argsort(b: Builder, node: Node) -> str:
    """Write ``TopK`` of all elements, which is stable."""
    x, axis = node.args[0], node.attrs["axis"]
    dtype = x.aval.dtype
    usual = dtype.name in ("float32", "float64", "int64", "int32")
    name = b.value(x, None if usual else np.dtype(np.float32 if dtype.kind not in "iub" else np.int32))
    stop = node.attrs.get("stop")
    count = x.aval.shape[axis] if stop is None else stop
    _, order = b.calls(
        "TopK",
        (name, b.ints([count])),
        2,
        axis=axis,
        largest=int(node.attrs.get("descending", False)),
        sorted=1,
    )
    start = node.attrs.get("start", 0)
    return b.sliced(order, [(axis, start, None, 1)]) if start and stop is not None else order
