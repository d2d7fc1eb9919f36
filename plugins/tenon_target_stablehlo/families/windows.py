"""Convolutions and their gradients, and resampling, of one to three spatial axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tenon.extend import Node
from tenon.ops.spatial.resampling import tables
from tenon_target_stablehlo.builder import INT64, Builder, Value
from tenon_target_stablehlo.families.elementwise import wide
from tenon_target_stablehlo.families.movement import reversed_along
from tenon_target_stablehlo.families.products import dot
from tenon_target_stablehlo.forms import alone, form, is_float
from tenon_target_stablehlo.lookups import take
from tenon_target_stablehlo.sizes import Size, are_numbers
from tenon_target_stablehlo.texts import list_text, type_text


def convolved(
    b: Builder,
    x: Value,
    weight: Value,
    shape: Sequence[Size],
    *,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    between: Sequence[int] | None = None,
    groups: int = 1,
    layout: str = "[b, f, {0}]x[o, i, {0}]->[b, f, {0}]",
    dtype: np.dtype | None = None,
) -> Value:
    """Write ``convolution``; ``between`` dilates ``x``, ``layout`` names the axes."""
    spatial = ", ".join(str(i) for i in range(len(stride)))
    dtype = x.dtype if dtype is None else dtype
    pads = ", ".join(list_text(p) for p in padding)
    between = [1] * len(stride) if between is None else between
    text = (
        f"stablehlo.convolution({x.name}, {weight.name}) dim_numbers = {layout.format(spatial)}, window = "
        f"{{stride = {list_text(stride)}, pad = [{pads}], lhs_dilate = {list_text(between)}, rhs_dilate = "
        f"{list_text(dilation)}}} {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : "
        f"({x.type}, {weight.type}) -> {type_text(dtype, shape)}"
    )
    return b.write(text, dtype, shape)


def _supports_convolution(node: Node) -> bool:
    return is_float(node) and alone(node) and are_numbers(node.args[1].aval.shape)


@form("conv", "convolution", when=_supports_convolution)
def write_convolution(b: Builder, node: Node) -> Value:
    """Write ``convolution``, and add the bias."""
    own, a = node.avals[0].dtype, node.attrs
    x, weight, *bias = (b.value(v, wide(own)) for v in node.args if v is not None)
    result = convolved(
        b, x, weight, node.avals[0].shape, stride=a["stride"], dilation=a["dilation"], groups=a["groups"],
        padding=[(p, p) for p in a["padding"]],
    )  # fmt: skip
    if bias:
        result = b.binary("add", result, b.broadcast(bias[0], result.shape, [1]))
    return b.convert(result, own)


def _has_sizes(node: Node) -> bool:
    shapes = [node.args[0].aval.shape[2:], node.args[1].aval.shape[2:], node.avals[0].shape[2:]]
    return is_float(node) and alone(node) and all(map(are_numbers, shapes))


@form("conv_input_grad", when=lambda node: _has_sizes(node) and are_numbers(node.args[1].aval.shape))
def write_transposed(b: Builder, node: Node) -> Value:
    """Convolve the input, dilated by the stride, with the flipped kernel whose channel axes are exchanged."""
    own, a = node.avals[0].dtype, node.attrs
    g, weight = (b.value(v, wide(own)) for v in node.args)
    kernel, groups = weight.shape[2:], int(a["groups"])
    weight = reversed_along(b, weight, range(2, weight.rank))
    if groups > 1:  # [G * O, I, *K] -> [O, G * I, *K]
        outs, ins = int(weight.shape[0]) // groups, int(weight.shape[1])
        weight = b.reshape(weight, (groups, outs, ins, *kernel))
        weight = b.transpose(weight, [1, 0, *range(2, weight.rank)])
        weight = b.reshape(weight, (outs, groups * ins, *kernel))
    padding = []
    spatial = zip(
        node.avals[0].shape[2:], g.shape[2:], kernel, a["stride"], a["padding"], a["dilation"], strict=True
    )
    for size, n, k, s, p, d in spatial:
        low = d * (k - 1) - p
        padding.append((low, int(size + d * (k - 1) - ((n - 1) * s + 1) - low)))
    result = convolved(
        b, g, weight, node.avals[0].shape, stride=[1] * len(kernel), padding=padding, between=a["stride"],
        dilation=a["dilation"], groups=groups, layout="[b, f, {0}]x[i, o, {0}]->[b, f, {0}]",
    )  # fmt: skip
    return b.convert(result, own)


def _supports_weight_gradient(node: Node) -> bool:
    return _has_sizes(node) and all(are_numbers(v.aval.shape) for v in node.args)


@form("conv_weight_grad", when=_supports_weight_gradient)
def write_weight_gradient(b: Builder, node: Node) -> Value:
    """Convolve the input with the gradient as the kernel; channels take the place of images, and the sums
    run over images."""
    own, a = node.avals[0].dtype, node.attrs
    x, g = (b.value(v, wide(own)) for v in node.args)
    kernel, groups = node.avals[0].shape[2:], int(a["groups"])
    count, channels, outs = int(x.shape[0]), int(x.shape[1]), int(g.shape[1])
    if groups > 1:  # channels of one group are images, groups are groups of the features that are summed
        x = b.reshape(x, (count, groups, channels // groups, *x.shape[2:]))
        x = b.transpose(x, [1, 0, *range(2, x.rank)])
        x = b.reshape(x, (groups * count, channels // groups, *x.shape[3:]))
    padding = []
    spatial = zip(x.shape[2:], g.shape[2:], kernel, a["stride"], a["padding"], a["dilation"], strict=True)
    for size, n, k, s, p, d in spatial:
        reach = (n - 1) * s + 1 + d * (k - 1)
        padding.append((p, int(reach - size - p)))
    result = convolved(
        b, x, g, (outs, channels // groups, *kernel), stride=a["dilation"], padding=padding,
        dilation=a["stride"], groups=groups, layout="[f, b, {0}]x[i, o, {0}]->[f, b, {0}]",
    )  # fmt: skip
    return b.convert(result, own)


def along(b: Builder, x: Value, axis: int, matrix: np.ndarray) -> Value:
    """Return the product of ``matrix`` with a value along one axis."""
    product = dot(b, x, b.constant(matrix, x.dtype), ([axis], [1]))
    return b.transpose(product, [*range(axis), x.rank - 1, *range(axis, x.rank - 1)])


def _supports_resample(node: Node) -> bool:
    return is_float(node) and alone(node) and are_numbers(node.args[0].aval.shape[2:])


@form("resample", when=_supports_resample)
def write_resample(b: Builder, node: Node) -> Value:
    """Look up elements where each is one of the input, else multiply by a small matrix, axis by axis."""
    own = node.avals[0].dtype
    x = b.value(node.args[0], wide(own))
    shape = tuple(int(s) if isinstance(s, int) else 1 for s in x.shape)
    for axis, (starts, places, weights) in tables(shape, node.attrs["plan"], x.dtype, for_gradient=False):
        if weights is None:
            x = take(b, x, b.constant(places, INT64), axis)
        else:
            x = along(b, x, axis, _matrix(starts, places, weights, shape[axis]))
    return b.convert(x, own)


@form("resample_grad", when=lambda node: _supports_resample(node) and are_numbers(node.avals[0].shape))
def write_resample_gradient(b: Builder, node: Node) -> Value:
    """Multiply by the transposed interpolation matrices."""
    own, shape = node.avals[0].dtype, tuple(map(int, node.avals[0].shape))
    x = b.value(node.args[0], wide(own))
    for axis, (starts, places, weights) in tables(shape, node.attrs["plan"], x.dtype, for_gradient=True):
        factors = np.ones(len(places)) if weights is None else weights
        x = along(b, x, axis, _matrix(starts, places, factors, int(x.shape[axis])))
    return b.convert(x, own)


def _matrix(starts: np.ndarray, places: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Return a table of sources and weights as a matrix."""
    matrix = np.zeros((len(starts) - 1, size))
    for row, (start, stop) in enumerate(itertools.pairwise(starts)):
        np.add.at(matrix[row], places[start:stop], weights[start:stop])
    return matrix
