"""Pooling over windows and its gradients, of one to three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon import ops
from tenon.extend import Node, no_grad, wrap
from tenon_target_stablehlo.builder import INT64, Builder, Value
from tenon_target_stablehlo.families.elementwise import wide
from tenon_target_stablehlo.families.reductions import count_of, lowest, reduce_window, reduced
from tenon_target_stablehlo.families.windows import along
from tenon_target_stablehlo.forms import alone, form, is_float, is_static
from tenon_target_stablehlo.sizes import Size, are_numbers
from tenon_target_stablehlo.texts import integers_text, list_text, type_text


def _dilation(node: Node) -> tuple[int, ...]:
    return tuple(node.attrs.get("dilation", (1,) * len(node.attrs["kernel"])))


def _padding(node: Node, sizes: Sequence[Size], results: Sequence[Size]) -> list[tuple[int, int]]:
    """Return the padding on both sides that gives ``results`` windows; at the end it may be negative."""
    a, widths = node.attrs, []
    if not are_numbers((*sizes, *results)):
        return [(int(p), int(p)) for p in a["padding"]]
    spatial = zip(sizes, results, a["kernel"], a["stride"], a["padding"], _dilation(node), strict=True)
    for size, n, k, s, p, d in spatial:
        reach = (n - 1) * s + d * (k - 1) + 1
        widths.append((int(p), int(reach - size - p)))
    return widths


def _has_sizes(node: Node) -> bool:
    return are_numbers(node.args[0].aval.shape[2:]) and are_numbers(node.avals[0].shape[2:])


def _windowed(b: Builder, x: Value, node: Node, operation: str, start: float, shape: Sequence[Size]) -> Value:
    """Combine the elements of each window."""
    kernel, stride = (1, 1, *node.attrs["kernel"]), (1, 1, *node.attrs["stride"])
    padding = [(0, 0), (0, 0), *_padding(node, x.shape[2:], shape[2:])]
    return reduce_window(b, x, operation, start, kernel, stride, padding, (1, 1, *_dilation(node)), shape)


def _supports_max_pool(node: Node) -> bool:
    return alone(node) and _has_sizes(node)


@form("max_pool", when=lambda node: alone(node) and (_has_sizes(node) or not node.attrs.get("ceil_mode")))
def write_max_pool(b: Builder, node: Node) -> Value:
    """Write ``reduce_window`` with a maximum."""
    x = b.value(node.args[0])
    return _windowed(b, x, node, "maximum", lowest(x.dtype), node.avals[0].shape)


@form("int8_max_pool", when=_supports_max_pool)
def write_integer_max_pool(b: Builder, node: Node) -> Value:
    """Write ``reduce_window`` of uint8."""
    return _windowed(b, b.value(node.args[0]), node, "maximum", 0, node.avals[0].shape)


def _elements(b: Builder, x: Value, node: Node, shape: Sequence[Size], fill: float) -> list[Value]:
    """Return, for every position in a window, the element of each window there."""
    a, padding = node.attrs, _padding(node, x.shape[2:], shape[2:])
    low, high = ([0, 0, *(p[i] for p in padding)] for i in (0, 1))
    padded = b.pad(x, low, high, fill)
    elements = []
    for position in np.ndindex(*map(int, a["kernel"])):
        part = padded
        spatial = zip(position, a["stride"], _dilation(node), shape[2:], strict=True)
        for axis, (i, s, d, n) in enumerate(spatial, 2):
            part = b.slice(part, axis, i * d, i * d + (n - 1) * s + 1, s, size=n)
        elements.append(part)
    return elements


@form("max_pool_indices", when=_supports_max_pool)
def write_max_pool_indices(b: Builder, node: Node) -> Value:
    """Write the index of the first largest element of each window."""
    return _indices(b, node)


def _indices(b: Builder, node: Node) -> Value:
    """Return the index of the first largest element of each window, or of its last NaN, by comparing in
    order."""
    a, aval = node.attrs, node.avals[0]
    x = b.value(node.args[0])
    elements = _elements(b, x, node, aval.shape, lowest(x.dtype))
    best, chosen = elements[0], b.full(0, INT64, aval.shape)
    for number, element in enumerate(elements[1:], 1):
        better = b.compare("GT", element, best)
        if x.dtype.kind in "fV":
            better = b.binary("or", better, b.compare("NE", element, element))
        best = b.select(better, element, best)
        chosen = b.select(better, b.full(number, INT64, aval.shape), chosen)
    flat = b.full(0, INT64, aval.shape)
    rest = chosen
    offsets = []
    for k in reversed(a["kernel"]):
        size = b.full(k, INT64, aval.shape)
        offsets.append(b.binary("remainder", rest, size))
        rest = b.binary("divide", rest, size)
    for axis, offset in enumerate(reversed(offsets)):
        d = _dilation(node)[axis]
        first = np.arange(int(aval.shape[2 + axis])) * a["stride"][axis] - a["padding"][axis]
        # Below 0 lies padding; the first element of such a window that is not padding is at ``first % d``.
        place = b.binary("multiply", offset, b.full(d, INT64, aval.shape))
        start = b.broadcast(b.constant(first, INT64), aval.shape, [2 + axis])
        place = b.binary("add", place, start)
        below = b.compare("LT", place, b.full(0, INT64, aval.shape))
        inside = b.broadcast(b.constant(first % d, INT64), aval.shape, [2 + axis])
        place = b.select(below, inside, place)
        flat = b.binary("multiply", flat, b.full(int(x.shape[2 + axis]), INT64, aval.shape))
        flat = b.binary("add", flat, place)
    return flat


def _has_equal_windows(node: Node) -> bool:
    return is_static(node) and all(
        n % s == 0 for n, s in zip(node.args[0].aval.shape[2:], node.attrs["sizes"], strict=True)
    )


@form("adaptive_max_pool_indices", when=_has_equal_windows)
def write_adaptive_max_pool_indices(b: Builder, node: Node) -> Value:
    """Write the indices of the maxima of windows of equal size."""
    sizes = node.args[0].aval.shape[2:]
    kernel = tuple(int(n // s) for n, s in zip(sizes, node.attrs["sizes"], strict=True))
    pooled = Node("call", ops.max_pool_indices, node.args)
    pooled.avals = node.avals
    pooled.attrs = {
        "kernel": kernel, "stride": kernel, "padding": (0,) * len(kernel), "dilation": (1,) * len(kernel),
    }  # fmt: skip
    return _indices(b, pooled)


def _supports_max_pool_gradient(node: Node) -> bool:
    """Whether windows are not dilated, and the gradient of their maxima can be written."""
    return _has_sizes(node) and is_float(node) and all(d == 1 for d in _dilation(node))


@form("max_pool_grad", when=_supports_max_pool_gradient)
def write_max_pool_gradient(b: Builder, node: Node) -> Value:
    """Write ``select_and_scatter``: the gradient of a window goes to its first largest element."""
    g, x = b.value(node.args[0]), b.value(node.args[1])
    kernel, stride = (1, 1, *node.attrs["kernel"]), (1, 1, *node.attrs["stride"])
    padding = [(0, 0), (0, 0), *_padding(node, x.shape[2:], g.shape[2:])]
    cut = [min(after, 0) for _, after in padding]
    uncropped = x
    if any(cut):  # the padding of the operation may not be negative
        x = b.pad(x, [0] * x.rank, cut, 0)
        padding = [(low, max(high, 0)) for low, high in padding]
    scalar = type_text(x.dtype, ())
    first = b.full(0, x.dtype)
    pads = ", ".join(list_text(p) for p in padding)
    properties = (
        f"padding = dense<[{pads}]> : tensor<{len(kernel)}x2xi64>, window_dimensions = "
        f"{integers_text(kernel)}, window_strides = {integers_text(stride)}"
    )
    regions = (
        f"^bb0(%$one: {scalar}, %$other: {scalar}): %$more = stablehlo.compare GE, %$one, %$other, FLOAT : "
        f"({scalar}, {scalar}) -> tensor<i1> stablehlo.return %$more : tensor<i1>}}, {{"
        f"^bb0(%$one: {scalar}, %$other: {scalar}): %$both = stablehlo.add %$one, %$other : {scalar} "
        f"stablehlo.return %$both : {scalar}"
    )
    (result,) = b.generic("select_and_scatter", [x, g, first], properties, regions, [(x.dtype, x.shape)])
    ends = [n - s for n, s in zip(uncropped.shape, x.shape, strict=True)] if any(cut) else [0] * x.rank
    return b.convert(b.pad(result, [0] * x.rank, ends, 0, shape=uncropped.shape), node.avals[0].dtype)


def _divisors(node: Node, sizes: Sequence[int]) -> np.ndarray:
    """Return the reciprocal of each window's divisor."""
    a = {k: v for k, v in node.attrs.items() if k != "shape"}
    operation = ops.avg_pool
    with no_grad():
        ones = wrap(np.ones((1, 1, *map(int, sizes))))
        means = np.asarray(operation(ones, **a).detach().numpy())[0, 0]
        sums = np.asarray(operation(ones, **{**a, "divisor": 1}).detach().numpy())[0, 0]
    return np.asarray(means / np.maximum(sums, 1))


@form("avg_pool", when=lambda node: _supports_max_pool(node) and is_float(node))
def write_average_pool(b: Builder, node: Node) -> Value:
    """Write ``reduce_window`` with a sum, times the reciprocals of the divisors."""
    own, shape = node.avals[0].dtype, node.avals[0].shape
    x = b.value(node.args[0], wide(own))
    sums = _windowed(b, x, node, "add", 0, shape)
    factors = b.constant(_divisors(node, x.shape[2:]), x.dtype)
    axes = range(2, x.rank)
    return b.convert(b.binary("multiply", sums, b.broadcast(factors, shape, axes)), own)


@form("avg_pool_grad", when=lambda node: _supports_max_pool(node) and is_float(node))
def write_average_pool_gradient(b: Builder, node: Node) -> Value:
    """Dilate the gradient by the stride, and sum its windows."""
    own, shape, a = node.avals[0].dtype, node.avals[0].shape, node.attrs
    g = b.value(node.args[0], wide(own))
    factors = b.constant(_divisors(node, shape[2:]), g.dtype)
    g = b.binary("multiply", g, b.broadcast(factors, g.shape, range(2, g.rank)))
    low, high, between = [0, 0], [0, 0], [0, 0]
    target_shape = list(g.shape[:2])
    for size, n, k, s, p in zip(shape[2:], g.shape[2:], a["kernel"], a["stride"], a["padding"], strict=True):
        low.append(int(k - 1 - p))
        high.append(int(size + p - ((n - 1) * s + 1)))
        between.append(int(s - 1))
        target_shape.append(size + k - 1)
    spread = b.pad(g, low, high, 0, between, target_shape)
    ones = [1] * g.rank
    kernel = (1, 1, *a["kernel"])
    return b.convert(reduce_window(b, spread, "add", 0, kernel, ones, [(0, 0)] * g.rank, ones, shape), own)


def _averages(size: int, count: int) -> np.ndarray:
    """Return a matrix whose rows are the means of adaptive windows."""
    matrix = np.zeros((count, size))
    for i in range(count):
        start, stop = i * size // count, -(-(i + 1) * size // count)
        matrix[i, start:stop] = 1 / (stop - start)
    return matrix


def _supports_adaptive_average_pool(node: Node) -> bool:
    whole = all(s == 1 for s in node.attrs["sizes"])
    return is_float(node) and alone(node) and (whole or _has_sizes(node))


@form("adaptive_avg_pool", when=_supports_adaptive_average_pool)
def write_adaptive_pool(b: Builder, node: Node) -> Value:
    """Write the mean if there is one window, else multiply by the windows of each axis."""
    own = node.avals[0].dtype
    x = b.value(node.args[0], wide(own))
    if all(s == 1 for s in node.attrs["sizes"]):
        sums = reduced(b, "add", x, range(2, x.rank), 0, keep=True)
        count = count_of(b, x.shape[2:], x.dtype, sums.shape)
        return b.convert(b.binary("divide", sums, count), own)
    for axis, count in enumerate(node.attrs["sizes"], 2):
        x = along(b, x, axis, _averages(int(x.shape[axis]), int(count)))
    return b.convert(x, own)


@form("adaptive_avg_pool_grad", when=lambda node: _supports_max_pool(node) and is_float(node))
def write_adaptive_pool_gradient(b: Builder, node: Node) -> Value:
    """Multiply by the transposed averaging matrices."""
    own = node.avals[0].dtype
    g = b.value(node.args[0], wide(own))
    for axis, size in enumerate(node.avals[0].shape[2:], 2):
        g = along(b, g, axis, _averages(int(size), int(g.shape[axis])).T)
    return b.convert(g, own)
