"""Ops that move elements: reshapes, permutations, slices, joins, paddings, look-ups at constant indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon import ops
from tenon.extend import Node, no_grad, wrap
from tenon_target_stablehlo.builder import INT64, Builder, Value
from tenon_target_stablehlo.families.elementwise import wide
from tenon_target_stablehlo.families.reductions import reduced
from tenon_target_stablehlo.forms import form, is_static
from tenon_target_stablehlo.lookups import counted, scatter, take
from tenon_target_stablehlo.sizes import Size, are_numbers, is_number, is_one


@form("reshape", "view", "unsqueeze", "squeeze")
def write_reshape(b: Builder, node: Node) -> Value:
    """Write ``reshape``."""
    return b.reshape(b.value(node.args[0]), node.avals[0].shape)


@form("alias", "clone", "contiguous", "ordered", "to_device")
def write_identity(b: Builder, node: Node) -> Value:
    """Return the operand itself: values are immutable."""
    return b.value(node.args[0])


@form("permute")
def write_permute(b: Builder, node: Node) -> Value:
    """Write ``transpose``."""
    return b.transpose(b.value(node.args[0]), node.attrs["axes"])


@form("transpose")
def write_transpose(b: Builder, node: Node) -> Value:
    """Write ``transpose`` of two axes."""
    order = list(range(len(node.avals[0].shape)))
    one, other = node.attrs["axis0"], node.attrs["axis1"]
    if order:
        order[one], order[other] = order[other], order[one]
    return b.transpose(b.value(node.args[0]), order)


@form("expand")
def write_expand(b: Builder, node: Node) -> Value:
    """Write ``broadcast_in_dim``."""
    return b.broadcast(b.value(node.args[0]), node.avals[0].shape)


@form("cat")
def write_cat(b: Builder, node: Node) -> Value:
    """Write ``concatenate``."""
    axis, aval = node.attrs["axis"], node.avals[0]
    return b.concatenate([b.value(a, aval.dtype) for a in node.args], axis, aval.shape[axis])


@form("stack")
def write_stack(b: Builder, node: Node) -> Value:
    """Add an axis to each operand, then join."""
    axis, aval = node.attrs["axis"], node.avals[0]
    shape = (*aval.shape[:axis], 1, *aval.shape[axis + 1 :])
    parts = [b.reshape(b.value(a, aval.dtype), shape) for a in node.args]
    return b.concatenate(parts, axis, aval.shape[axis])


@form("split", when=lambda node: are_numbers(node.attrs["sizes"]))
def write_split(b: Builder, node: Node) -> tuple[Value, ...]:
    """Write a slice for each piece."""
    x, axis, start, pieces = b.value(node.args[0]), node.attrs["axis"], 0, []
    for size in node.attrs["sizes"]:
        pieces.append(b.slice(x, axis, start, start + size))
        start += size
    return tuple(pieces)


@form("unbind")
def write_unbind(b: Builder, node: Node) -> tuple[Value, ...]:
    """Write slices of size 1, without that axis."""
    x, axis = b.value(node.args[0]), node.attrs["axis"]
    return tuple(b.reshape(b.slice(x, axis, i, i + 1), aval.shape) for i, aval in enumerate(node.avals))


@form("slice_axis")
def write_slice_axis(b: Builder, node: Node) -> Value:
    """Write ``slice``."""
    axis, start, stop = (node.attrs[k] for k in ("axis", "start", "stop"))
    return b.slice(b.value(node.args[0]), axis, start, stop, size=node.avals[0].shape[axis])


def _full_key(node: Node) -> list[Any]:  # slices, integers and None
    """Return the key of an index with a part for each axis."""
    key, rank = list(node.attrs["key"]), len(node.args[0].aval.shape)
    present = sum(1 for k in key if k is not None and k is not Ellipsis)
    filling = [slice(None)] * (rank - present)
    if Ellipsis in key:
        place = key.index(Ellipsis)
        return [*key[:place], *filling, *key[place + 1 :]]
    return key + filling


def _supports_index(node: Node) -> bool:
    """Whether all parts of a key are plain where the axis has a size that may change."""
    axis = 0
    for part in _full_key(node):
        if part is None:
            continue
        size = node.args[0].aval.shape[axis]
        axis += 1
        if isinstance(part, slice):
            plain = is_number(size) and all(p is None or is_number(p) for p in (part.start, part.stop))
            if not plain and part.step not in (None, 1):
                return False
    return True


@form("index", when=_supports_index)
def write_index(b: Builder, node: Node) -> Value:
    """Write ``slice``, and ``reshape`` for integers and None."""
    x, axis, shape = b.value(node.args[0]), 0, node.avals[0].shape
    for position, part in enumerate(_full_key(node)):
        if part is None:
            continue
        size = x.shape[axis]
        if not isinstance(part, slice):
            x = _at(b, x, axis, part)
        elif not _is_whole(part, size):
            integers = sum(
                1 for p in _full_key(node)[:position] if p is not None and not isinstance(p, slice)
            )
            x = _sliced(b, x, axis, part, shape[position - integers])
        axis += 1
    return b.reshape(x, shape)


def _is_whole(part: slice, size: Size) -> bool:
    return part.start in (None, 0) and part.step in (None, 1) and (part.stop is None or part.stop == size)


def _at(b: Builder, x: Value, axis: int, place: Size) -> Value:
    """Return the slice at one index of an axis, whose size becomes 1."""
    size = x.shape[axis]
    if is_number(place) and is_number(size):
        first = int(place) + (int(size) if place < 0 else 0)
        return b.slice(x, axis, first, first + 1, size=1)
    where = b.reshape(b.value(place, INT64), (1,))
    return take(b, x, counted(b, where, size), axis)


def _sliced(b: Builder, x: Value, axis: int, part: slice, count: Size) -> Value:
    """Return a part along one axis, of ``count`` elements; backwards for a negative step."""
    size = x.shape[axis]
    if not is_number(size) or not all(p is None or is_number(p) for p in (part.start, part.stop)):
        start = 0 if part.start is None else part.start
        return b.dynamic_slice(x, axis, start, count)
    start, stop, step = part.indices(int(size))
    places = range(start, stop, step)
    if step > 0:
        return b.slice(x, axis, start, max(stop, start), step)
    if not places:
        return b.slice(x, axis, 0, 0)
    return reversed_along(b, b.slice(x, axis, places[-1], places[0] + 1, -step), [axis])


def reversed_along(b: Builder, x: Value, axes: Any) -> Value:  # one or several
    """Return ``x`` in reverse order along some axes."""
    inner = ", ".join(map(str, axes))
    return b.write(f"stablehlo.reverse {x.name}, dims = [{inner}] : {x.type}", x.dtype, x.shape)


@form("pad", when=lambda node: are_numbers([w for both in node.attrs["widths"] for w in both]))
def write_pad(b: Builder, node: Node) -> Value:
    """Write ``pad``, which crops by negative widths."""
    low, high = ([int(w[i]) for w in node.attrs["widths"]] for i in (0, 1))
    value = node.attrs.get("value", 0)
    return b.pad(b.value(node.args[0]), low, high, value, shape=node.avals[0].shape)


@form("flip")
def write_flip(b: Builder, node: Node) -> Value:
    """Write ``reverse``."""
    axes = _axes(node.attrs["axes"])
    return reversed_along(b, b.value(node.args[0]), axes) if axes else b.value(node.args[0])


def _axes(axes: Any) -> tuple[int, ...]:  # one or several
    return (axes,) if isinstance(axes, int) else tuple(axes)


@form("roll", when=lambda node: node.attrs["axes"] is not None)
def write_roll(b: Builder, node: Node) -> Value:
    """Exchange the two parts along each axis."""
    x, shifts = b.value(node.args[0]), node.attrs["shifts"]
    for shift, axis in zip(
        shifts if isinstance(shifts, tuple) else (shifts,), _axes(node.attrs["axes"]), strict=True
    ):
        if not are_numbers((shift, x.shape[axis])):
            x = _rolled(b, x, shift, axis)
            continue
        size = int(x.shape[axis])
        start = -int(shift) % max(size, 1)
        if start:
            x = b.concatenate([b.slice(x, axis, start, size), b.slice(x, axis, 0, start)], axis)
    return x


def _rolled(b: Builder, x: Value, shift: Size, axis: int) -> Value:
    """Look up each element of an axis at its place, modulo the size."""
    size = x.shape[axis]
    own = b.iota(INT64, (size,), 0)
    places = b.binary("subtract", own, b.broadcast(b.value(shift, INT64), own.shape))
    places = b.binary("remainder", places, b.broadcast(b.value(size, INT64), own.shape))
    return take(b, x, counted(b, places, size), axis)


@form("tril", "triu")
def write_triangle(b: Builder, node: Node) -> Value:
    """Compare rows and columns, and select."""
    x = b.value(node.args[0])
    rows, columns = (b.iota(INT64, x.shape, x.rank - i) for i in (2, 1))
    edge = b.binary("add", rows, b.full(node.attrs.get("k", 0), INT64, x.shape))
    inside = b.compare("LE" if node.name == "tril" else "GE", columns, edge)
    return b.select(inside, x, b.full(0, x.dtype, x.shape))


@form("sum_to")
def write_sum_to(b: Builder, node: Node) -> Value:
    """Sum the axes that were broadcast."""
    x, shape = b.value(node.args[0]), node.avals[0].shape
    lead = x.rank - len(shape)
    inner = [a for a in range(lead, x.rank) if is_one(shape[a - lead]) and not is_one(x.shape[a])]
    return b.reshape(reduced(b, "add", x, [*range(lead), *inner], 0), shape)


@form("window_of", when=is_static)
def write_window(b: Builder, node: Node) -> Value:
    """Write ``pad`` with zeros at the end of each axis."""
    x, shape = b.value(node.args[0]), node.avals[0].shape
    return b.pad(x, [0] * x.rank, [n - s for n, s in zip(shape, x.shape, strict=True)], 0)


@form(
    "diagonal",
    "diagonal_embed",
    "as_strided",
    "strided_read",
    "unfold_axis",
    "embed",
    when=is_static,
)
def write_by_places(b: Builder, node: Node) -> Value:
    """Look up each element by its source index: the op's result for the numbers 1, 2, 3, ..., where 0 is
    padding."""
    return look_up(b, node, 0)


@form("unfold", when=lambda node: are_numbers(node.args[0].aval.shape[1:]))
def write_unfold(b: Builder, node: Node) -> Value:
    """Look up elements by their indices within each image."""
    return look_up(b, node, 1)


def look_up(b: Builder, node: Node, lead: int) -> Value:
    """Write a call as a look-up at constant indices, the same for each index of the first ``lead`` axes."""
    x = node.args[0].aval
    rest = tuple(map(int, x.shape[lead:]))
    count = math.prod(rest)
    numbers = np.arange(1, count + 1, dtype=np.int64).reshape((1,) * lead + rest)
    with no_grad():
        places = np.asarray(node.op(wrap(numbers), **node.attrs).detach().numpy())
    places = places.reshape(places.shape[lead:])
    flat = b.reshape(b.value(node.args[0]), (*x.shape[:lead], count))
    if (places == 0).any():
        shape = (*x.shape[:lead], count + 1)
        flat = b.pad(flat, [0] * lead + [1], [0] * (lead + 1), 0, shape=shape)
    else:
        places = places - 1
    return take(b, flat, b.constant(places, INT64), lead)


@form("place", when=is_static)
def write_place(b: Builder, node: Node) -> Value:
    """Write elements at constant indices into the flattened value."""
    x, y = b.value(node.args[0]), b.value(node.args[1], node.avals[0].dtype)
    count = math.prod(x.shape)
    places = np.arange(count, dtype=np.int64).reshape(x.shape)[node.attrs["key"]]
    values = b.reshape(b.broadcast(y, places.shape), (places.size,))
    where = b.constant(places.reshape(-1, 1), INT64)
    return b.reshape(scatter(b, b.reshape(x, (count,)), where, values, [0], None), x.shape)


@form("fold", "fold_axis", when=is_static)
def write_fold(b: Builder, node: Node) -> Value:
    """Add each element at the index from which the transposed op, ``unfold``, reads it."""
    own, aval, a = wide(node.avals[0].dtype), node.avals[0], dict(node.attrs)
    x = b.value(node.args[0], own)
    lead = 1 if node.name == "fold" else 0
    rest = tuple(map(int, aval.shape[lead:]))
    count = math.prod(rest)
    numbers = wrap(np.arange(1, count + 1, dtype=np.int64).reshape((1,) * lead + rest))
    with no_grad():
        if node.name == "fold":
            del a["sizes"]
            unfolded = ops.unfold(numbers, **a)
        else:
            unfolded = ops.unfold_axis(numbers, axis=a["axis"], size=int(x.shape[-1]), step=a["step"])
    places = np.asarray(unfolded.detach().numpy()).reshape(-1, 1)
    flat = b.reshape(x, (*x.shape[:lead], len(places)))
    zeros = b.full(0, own, (*aval.shape[:lead], count + 1))
    where, order = b.constant(places, INT64), [lead, *range(lead)]
    result = scatter(b, zeros, where, b.transpose(flat, order), [lead], "add")
    result = b.slice(result, lead, 1, count + 1)  # the first element is the sum of the padding
    return b.convert(b.reshape(result, aval.shape), aval.dtype)
