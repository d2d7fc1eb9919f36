"""Reductions over axes: sums, means, products, extremes, logic; indices of extremes; cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tenon.extend import Node
from tenon_target_stablehlo.builder import BOOL, INT64, Builder, Value
from tenon_target_stablehlo.families.elementwise import wide
from tenon_target_stablehlo.families.products import dot
from tenon_target_stablehlo.forms import form
from tenon_target_stablehlo.sizes import Size, are_numbers, is_number
from tenon_target_stablehlo.texts import integers_text, list_text, type_text


def reduced(
    b: Builder, operation: str, x: Value, axes: Sequence[int], start: float, keep: bool = False
) -> Value:
    """Return ``x`` reduced over ``axes`` by an operation, beginning with ``start``."""
    axes = sorted(a % max(x.rank, 1) for a in axes)
    if not axes or not x.rank:
        return x
    shape = tuple(s for a, s in enumerate(x.shape) if a not in axes)
    first, target = b.full(start, x.dtype), type_text(x.dtype, shape)
    text = (
        f"stablehlo.reduce({x.name} init: {first.name}) applies stablehlo.{operation} across dimensions = "
        f"{list_text(axes)} : ({x.type}, {first.type}) -> {target}"
    )
    result = b.write(text, x.dtype, shape)
    if not keep:
        return result
    return b.reshape(result, tuple(1 if a in axes else s for a, s in enumerate(x.shape)))


def lowest(dtype: np.dtype) -> float:
    """Return the identity of a maximum: the smallest number of a dtype, minus infinity for floats."""
    if dtype.kind == "b":
        return 0
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -math.inf


def highest(dtype: np.dtype) -> float:
    """Return the identity of a minimum: the largest number of a dtype, infinity for floats."""
    if dtype.kind == "b":
        return 1
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else math.inf


def _start(operation: str, dtype: np.dtype) -> float:
    starts = {"add": 0, "multiply": 1, "maximum": lowest(dtype), "minimum": highest(dtype)}
    return starts[operation]


_OPERATIONS = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}


@form(*_OPERATIONS)
def write_reduction(b: Builder, node: Node) -> Value:
    """Write ``reduce``, in the dtype of the result or a wider one."""
    own, x = node.avals[0].dtype, node.args[0].aval
    dtype = wide(own)
    axes, keep = node.attrs["axes"], bool(node.attrs.get("keepdims"))
    operation = _OPERATIONS[node.name]
    result = reduced(b, operation, b.value(node.args[0], dtype), axes, _start(operation, dtype), keep)
    if node.name == "mean":
        result = b.binary("divide", result, count_of(b, [x.shape[a] for a in axes], dtype, result.shape))
    return b.convert(result, own)


def count_of(b: Builder, sizes: Sequence[Size], dtype: np.dtype, shape: Sequence[Size]) -> Value:
    """Return the product of sizes as a number, in a shape."""
    if are_numbers(sizes):
        return b.full(math.prod(map(int, sizes)), dtype, shape)
    total = b.convert(b.reshape(b.size(sizes[0]), ()), dtype)
    for size in sizes[1:]:
        total = b.binary("multiply", total, b.convert(b.reshape(b.size(size), ()), dtype))
    return b.broadcast(total, shape)


@form("any", "all")
def write_logic(b: Builder, node: Node) -> Value:
    """Reduce whether elements are not 0."""
    operation, start = ("or", 0) if node.name == "any" else ("and", 1)
    booleans = b.value(node.args[0], BOOL)
    result = reduced(b, operation, booleans, node.attrs["axes"], start, bool(node.attrs.get("keepdims")))
    return b.convert(result, node.avals[0].dtype)


def _has_position(node: Node) -> bool:
    x = node.args[0].aval
    return x.dtype.name != "bool" and (node.attrs["axis"] is not None or are_numbers(x.shape))


@form("argmax", "argmin", when=_has_position)
def write_position(b: Builder, node: Node) -> Value:
    """Find the extreme, then the first index that has it, or that of the first NaN."""
    x, axis = b.value(node.args[0]), node.attrs["axis"]
    if axis is None or not x.rank:
        x, axis = b.reshape(x, (math.prod(map(int, x.shape)),)), 0
    operation = "maximum" if node.name == "argmax" else "minimum"
    extreme = reduced(b, operation, x, [axis], _start(operation, x.dtype), keep=True)
    is_extreme = b.compare("EQ", x, b.broadcast(extreme, x.shape))
    if x.dtype.kind in "fV":
        is_extreme = b.binary("or", is_extreme, b.compare("NE", x, x))
    places = b.iota(INT64, x.shape, axis)
    last = b.full(int(np.iinfo(np.int64).max), INT64, x.shape)
    first = reduced(b, "minimum", b.select(is_extreme, places, last), [axis], _start("minimum", INT64))
    return b.reshape(first, node.avals[0].shape)


def _running_sum(b: Builder, x: Value, node: Node) -> Value:
    """Return sums along an axis whose size may change: multiples of the position if all elements are equal.

    Others are multiplied by a triangle of ones.
    """
    axis, source = node.attrs["axis"], node.args[0].node
    if source.kind == "call" and source.name == "new_full":
        places = b.iota(x.dtype, x.shape, axis)
        return b.binary("multiply", b.binary("add", places, b.full(1, x.dtype, x.shape)), x)
    size = x.shape[axis]
    square = (size, size)
    rows, columns = (b.iota(INT64, square, i) for i in (0, 1))
    triangle = b.convert(b.compare("LE", columns, rows), x.dtype)
    product = dot(b, x, triangle, ([axis], [1]))
    return b.transpose(product, [*range(axis), x.rank - 1, *range(axis, x.rank - 1)])


def reduce_window(
    b: Builder,
    x: Value,
    operation: str,
    start: float,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    shape: Sequence[Size],
) -> Value:
    """Return each window of ``x`` combined by an operation; one number for each axis of ``x``."""
    scalar = type_text(x.dtype, ())
    region = (
        f"^bb0(%$one: {scalar}, %$other: {scalar}): %$both = stablehlo.{operation} %$one, %$other : {scalar} "
        f"stablehlo.return %$both : {scalar}"
    )
    pads = ", ".join(list_text(p) for p in padding)
    properties = (
        f"padding = dense<[{pads}]> : tensor<{len(kernel)}x2xi64>, window_dilations = "
        f"{integers_text(dilation)}, window_dimensions = {integers_text(kernel)}, window_strides = "
        f"{integers_text(stride)}"
    )
    first = b.full(start, x.dtype)
    return b.generic("reduce_window", [x, first], properties, region, [(x.dtype, shape)])[0]


def _supports_cumulative(node: Node) -> bool:
    shape = node.avals[0].shape
    return not shape or node.name == "cumsum" or is_number(shape[node.attrs["axis"]])


@form("cumsum", "cumprod", when=_supports_cumulative)
def write_running(b: Builder, node: Node) -> Value:
    """Combine the windows that end at each element."""
    own = node.avals[0].dtype
    x = b.value(node.args[0], wide(own))
    if x.rank and not is_number(x.shape[node.attrs["axis"]]):
        return b.convert(_running_sum(b, x, node), own)
    if x.rank and int(x.shape[node.attrs["axis"]]):
        operation = "add" if node.name == "cumsum" else "multiply"
        axis, ones = node.attrs["axis"], [1] * x.rank
        kernel, padding = list(ones), [(0, 0)] * x.rank
        kernel[axis] = int(x.shape[axis])
        padding[axis] = (kernel[axis] - 1, 0)
        x = reduce_window(b, x, operation, _start(operation, x.dtype), kernel, ones, padding, ones, x.shape)
    return b.convert(x, own)
