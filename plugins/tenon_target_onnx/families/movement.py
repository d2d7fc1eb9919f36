"""Ops that move elements: reshapes, permutations, slices, concatenation, padding, look-ups at constant
positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Node, no_grad, wrap
from tenon_target_onnx.builder import BOOL, Builder
from tenon_target_onnx.forms import form
from tenon_target_onnx.sizes import Size, are_numbers


@form("reshape", "view", "unsqueeze", "squeeze")
def write_reshape(b: Builder, node: Node) -> str:
    """Write ``Reshape``."""
    return b.reshape(b.value(node.args[0]), node.avals[0].shape)


@form("alias", "clone", "contiguous", "ordered", "to_device")
def write_identity(b: Builder, node: Node) -> str:
    """Use the operand itself: values never change."""
    return b.value(node.args[0])


@form("permute")
def write_permute(b: Builder, node: Node) -> str:
    """Write ``Transpose``."""
    return b.permuted(b.value(node.args[0]), node.attrs["axes"])


@form("transpose")
def write_transpose(b: Builder, node: Node) -> str:
    """Write ``Transpose`` of two axes."""
    order = list(range(len(node.avals[0].shape)))
    one, other = node.attrs["axis0"], node.attrs["axis1"]
    if order:
        order[one], order[other] = order[other], order[one]
    return b.permuted(b.value(node.args[0]), order)


@form("expand")
def write_expand(b: Builder, node: Node) -> str:
    """Write ``Expand``."""
    if node.args[0].aval.shape == node.avals[0].shape:
        return b.value(node.args[0])
    return b.call("Expand", b.value(node.args[0]), b.shape(node.avals[0].shape))


@form("cat")
def write_cat(b: Builder, node: Node) -> str:
    """Write ``Concat``."""
    return b.call("Concat", *(b.value(a) for a in node.args), axis=node.attrs["axis"])


@form("stack")
def write_stack(b: Builder, node: Node) -> str:
    """Add an axis to each operand, then write ``Concat``."""
    axis = node.attrs["axis"]
    return b.call("Concat", *(b.unsqueezed(b.value(a), [axis]) for a in node.args), axis=axis)


@form("split")
def write_split(b: Builder, node: Node) -> tuple[str, ...]:
    """Write ``Split``."""
    sizes, axis = node.attrs["sizes"], node.attrs["axis"]
    return b.calls("Split", (b.value(node.args[0]), b.shape(sizes)), len(node.avals), axis=axis)


@form("unbind")
def write_unbind(b: Builder, node: Node) -> tuple[str, ...]:
    """Split into pieces of size 1, without that axis."""
    axis, count = node.attrs["axis"], len(node.avals)
    pieces = b.calls("Split", (b.value(node.args[0]), b.ints([1] * count)), count, axis=axis)
    return tuple(b.squeezed(piece, [axis]) for piece in pieces)


@form("slice_axis")
def write_slice_axis(b: Builder, node: Node) -> str:
    """Write ``Slice``."""
    axis, start, stop = (node.attrs[k] for k in ("axis", "start", "stop"))
    x = node.args[0]
    whole = stop == x.aval.shape[axis]
    return b.sliced(b.value(x), [(axis, start, None if whole else stop, 1)])


@form("index")
def write_index(b: Builder, node: Node) -> str:
    """Write ``Slice``, ``Gather`` for integers, and ``Unsqueeze`` for None."""
    key, rank = list(node.attrs["key"]), len(node.args[0].aval.shape)
    present = sum(1 for k in key if k is not None and k is not Ellipsis)
    filling = [slice(None)] * (rank - present)
    if Ellipsis in key:
        place = key.index(Ellipsis)
        key[place : place + 1] = filling
    else:
        key += filling
    parts: list[tuple[int, Size | None, Size | None, int]] = []
    integers: list[tuple[int, Size]] = []
    axis = 0
    for k in key:
        if k is None:
            continue
        if isinstance(k, slice):
            if k != slice(None) and not _is_whole(k, node.args[0].aval.shape[axis]):
                parts.append((axis, k.start, k.stop, k.step if k.step is not None else 1))
        else:
            integers.append((axis, k))
        axis += 1
    name = b.sliced(b.value(node.args[0]), parts)
    for axis, position in reversed(integers):
        name = b.call("Gather", name, b.value(position, np.dtype(np.int64)), axis=axis)
    kept = [k for k in key if k is None or isinstance(k, slice)]
    return b.unsqueezed(name, [i for i, k in enumerate(kept) if k is None])


def _is_whole(part: slice, size: Size) -> bool:
    return part.start in (None, 0) and part.step in (None, 1) and (part.stop is None or part.stop == size)


@form("pad", when=lambda node: are_numbers([w for both in node.attrs["widths"] for w in both]))
def write_pad(b: Builder, node: Node) -> str:
    """Slice for negative widths, then write ``Pad``."""
    name, widths, dtype = b.value(node.args[0]), node.attrs["widths"], node.avals[0].dtype
    cuts: list[tuple[int, int | None, int | None, int]] = []
    for axis, (before, after) in enumerate(widths):
        if before < 0 or after < 0:
            cuts.append((axis, max(-before, 0), after if after < 0 else None, 1))
    name = b.sliced(name, cuts)
    added = [max(w[0], 0) for w in widths] + [max(w[1], 0) for w in widths]
    if not any(added):
        return name
    value = node.attrs.get("value", 0)
    if dtype == BOOL:
        integers = np.dtype(np.int32)
        padded = b.call("Pad", b.cast(name, integers), b.ints(added), b.constant(int(value), integers))
        return b.cast(padded, dtype)
    return b.call("Pad", name, b.ints(added), b.constant(value, dtype))


@form("flip")
def write_flip(b: Builder, node: Node) -> str:
    """Write ``Slice`` with a negative step."""
    return b.sliced(b.value(node.args[0]), [(a, None, None, -1) for a in node.attrs["axes"]])


def _axes(axes: Any) -> tuple[int, ...]:  # one or several
    return (axes,) if isinstance(axes, int) else tuple(axes)


@form("roll", when=lambda node: node.attrs["axes"] is not None)
def write_roll(b: Builder, node: Node) -> str:
    """Exchange the two parts along each axis."""
    name, shape = b.value(node.args[0]), node.avals[0].shape
    shifts = node.attrs["shifts"]
    for shift, axis in zip(
        shifts if isinstance(shifts, tuple) else (shifts,), _axes(node.attrs["axes"]), strict=True
    ):
        if not are_numbers((shift, shape[axis])):
            name = _rolled(b, name, shift, axis, shape[axis])
            continue
        start = -int(shift) % max(int(shape[axis]), 1)
        if start:
            first, rest = b.sliced(name, [(axis, start, None, 1)]), b.sliced(name, [(axis, 0, start, 1)])
            name = b.call("Concat", first, rest, axis=axis)
    return name


def _rolled(b: Builder, name: str, shift: Size, axis: int, size: Size) -> str:
    """Exchange the two parts along an axis, at a place that is computed from its size."""
    start = b.call("Mod", b.call("Neg", b.size(shift)), b.call("Max", b.size(size), b.ints([1])))
    zero, axes = b.ints([0]), b.ints([axis])
    first = b.call("Slice", name, start, b.ints([np.iinfo(np.int64).max]), axes)
    return b.call("Concat", first, b.call("Slice", name, zero, start, axes), axis=axis)


@form("tril", "triu")
def write_triangle(b: Builder, node: Node) -> str:
    """Write ``Trilu``."""
    dtype = node.avals[0].dtype
    usual = dtype.name in ("float32", "float64", "int64", "bool")
    wide = dtype if usual else np.dtype(np.int64 if dtype.kind in "iu" else np.float32)
    k = b.constant(node.attrs.get("k", 0), np.dtype(np.int64))
    name = b.call("Trilu", b.value(node.args[0], wide), k, upper=int(node.name == "triu"))
    return name if wide == dtype else b.cast(name, dtype)


def _is_static(node: Node) -> bool:
    return all(are_numbers(a.shape) for a in [node.args[0].aval, *node.avals])


@form(
    "diagonal",
    "diagonal_embed",
    "as_strided",
    "strided_read",
    "unfold_axis",
    "window_of",
    "embed",
    when=_is_static,
)
def write_by_places(b: Builder, node: Node) -> str:
    """Look up the position of each element, found by applying the op to the numbers 1, 2, 3, ...; 0 means
    zero."""
    return look_up(b, node, 0)


@form("unfold", when=lambda node: are_numbers(node.args[0].aval.shape[1:]))
def write_unfold(b: Builder, node: Node) -> str:
    """Look up the positions within each image."""
    return look_up(b, node, 1)


def look_up(b: Builder, node: Node, lead: int) -> str:
    """Write a call as a look-up at constant positions, the same for each index of the first ``lead`` axes."""
    x, target = node.args[0].aval, node.avals[0]
    rest = tuple(map(int, x.shape[lead:]))
    count = math.prod(rest)
    numbers = np.arange(1, count + 1, dtype=np.int64).reshape((1,) * lead + rest)
    with no_grad():
        places = np.asarray(node.op(wrap(numbers), **node.attrs).detach().numpy())
    flat = b.reshape(b.value(node.args[0]), (*x.shape[:lead], count))
    shape = places.shape[lead:]
    if (places == 0).any():
        widths = [0] * lead + [1] + [0] * (lead + 1)
        flat = _padded_in_front(b, flat, widths, x.dtype)
    else:
        places = places - 1
    return (
        b.call("Gather", flat, b.constant(places.reshape(shape), np.dtype(np.int64)), axis=lead)
        if target.shape
        else (b.call("Gather", flat, b.constant(places.reshape(()), np.dtype(np.int64)), axis=0))
    )


def _padded_in_front(b: Builder, name: str, widths: list[int], dtype: np.dtype) -> str:
    """Return a value with a zero before it."""
    wide = np.dtype(np.int32) if dtype == BOOL else dtype
    name = b.cast(name, wide) if wide != dtype else name
    name = b.call("Pad", name, b.ints(widths), b.constant(0, wide))
    return b.cast(name, dtype) if wide != dtype else name
