"""Convolutions, pooling, and resampling of one to three spatial axes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tenon.extend import Node, no_grad, wrap
from tenon.ops.spatial.resampling import tables
from tenon_target_onnx.builder import FLOAT32, INT64, Builder
from tenon_target_onnx.forms import form, is_float, same_floats
from tenon_target_onnx.sizes import are_numbers


def geometry(node: Node, kernel: tuple[int, ...]) -> dict[str, Any]:  # numbers and lists
    """Return the attributes of a convolution."""
    a = node.attrs
    return {
        "kernel_shape": list(map(int, kernel)),
        "strides": list(a["stride"]),
        "pads": [*a["padding"], *a["padding"]],
        "dilations": list(a["dilation"]),
        "group": a["groups"],
    }


@form("conv", "convolution", when=same_floats)
def write_convolution(b: Builder, node: Node) -> str:
    """Write ``Conv``."""
    weight = node.args[1]
    inputs = [b.value(a) for a in node.args if a is not None]
    return b.call("Conv", *inputs, **geometry(node, weight.aval.shape[2:]))


def _supports_transposed_convolution(node: Node) -> bool:
    return same_floats(node) and are_numbers(node.args[0].aval.shape[2:]) and are_numbers(node.attrs["sizes"])


@form("conv_input_grad", when=_supports_transposed_convolution)
def write_transposed(b: Builder, node: Node) -> str:
    """Write ``ConvTranspose``; the missing size is output padding."""
    g, weight = node.args
    kernel = weight.aval.shape[2:]
    attributes = geometry(node, kernel)
    a = node.attrs
    extra = [
        int(size - ((n - 1) * s - 2 * p + d * (k - 1) + 1))
        for size, n, s, p, d, k in zip(
            a["sizes"], g.aval.shape[2:], a["stride"], a["padding"], a["dilation"], kernel, strict=True
        )
    ]
    if any(extra):
        attributes["output_padding"] = extra
    return b.call("ConvTranspose", b.value(g), b.value(weight), **attributes)


def _pads(node: Node, dilation: tuple[int, ...]) -> list[int] | None:
    """Return the padding before and after each axis, so that all windows of the result are inside.

    None if operators do not support the padding, as a window ends too far outside.
    """
    a = node.attrs
    sizes, results = node.args[0].aval.shape[2:], node.avals[0].shape[2:]
    if not are_numbers((*sizes, *results)):
        return None if a.get("ceil_mode") else [*a["padding"], *a["padding"]]
    after = []
    for size, n, k, s, p, d in zip(
        sizes, results, a["kernel"], a["stride"], a["padding"], dilation, strict=True
    ):
        reach = (n - 1) * s + d * (k - 1) + 1
        after.append(max(int(reach - size - p), p))
        if after[-1] >= d * (k - 1) + 1:
            return None
    return [*a["padding"], *after]


def _dilation(node: Node) -> tuple[int, ...]:
    return tuple(node.attrs.get("dilation", (1,) * len(node.attrs["kernel"])))


def _supports_max_pool(node: Node) -> bool:
    return (
        node.avals[0].dtype.name in ("float32", "float64", "uint8")
        and _pads(node, _dilation(node)) is not None
    )


@form("max_pool", "int8_max_pool", when=_supports_max_pool)
def write_max_pool(b: Builder, node: Node) -> str:
    """Write ``MaxPool``, with padding at the end in place of rounding up."""
    return _max_pool(b, node, 1)[0]


def _max_pool(b: Builder, node: Node, count: int) -> tuple[str, ...]:
    dilation = _dilation(node)
    return b.calls(
        "MaxPool", (b.value(node.args[0]),), count, kernel_shape=list(node.attrs["kernel"]),
        strides=list(node.attrs["stride"]), pads=_pads(node, dilation), dilations=list(dilation),
    )  # fmt: skip


def _supports_max_pool_indices(node: Node) -> bool:
    x = node.args[0].aval
    return (
        x.dtype.name in ("float32", "float64")
        and _pads(node, _dilation(node)) is not None
        and are_numbers(x.shape[2:])
    )


@form("max_pool_indices", when=_supports_max_pool_indices)
def write_max_pool_indices(b: Builder, node: Node) -> str:
    """Take the second output of ``MaxPool``, which counts over all images, within each."""
    _, places = _max_pool(b, node, 2)
    return b.call("Mod", places, b.constant(math.prod(node.args[0].aval.shape[2:]), INT64))


def _has_equal_windows(node: Node) -> bool:
    x = node.args[0].aval
    spatial = x.shape[2:]
    usual = x.dtype.name in ("float32", "float64") and are_numbers(spatial)
    return usual and all(n % s == 0 for n, s in zip(spatial, node.attrs["sizes"], strict=True))


@form("adaptive_max_pool_indices", when=_has_equal_windows)
def write_adaptive_max_pool_indices(b: Builder, node: Node) -> str:
    """Take the second output of ``MaxPool`` with windows of one size, within each image."""
    spatial = node.args[0].aval.shape[2:]
    kernel = [int(n // s) for n, s in zip(spatial, node.attrs["sizes"], strict=True)]
    _, places = b.calls("MaxPool", (b.value(node.args[0]),), 2, kernel_shape=kernel, strides=kernel)
    return b.call("Mod", places, b.constant(math.prod(spatial), INT64))


def _supports_average_pool(node: Node) -> bool:
    plain = node.attrs.get("divisor") is None and not node.attrs.get("ceil_mode")
    return node.avals[0].dtype.name in ("float32", "float64") and (
        plain or are_numbers(node.args[0].aval.shape[2:])
    )


@form("avg_pool", when=_supports_average_pool)
def write_average_pool(b: Builder, node: Node) -> str:
    """Write ``AveragePool``; with constant factors where the divisors differ from its own."""
    a, x = node.attrs, node.args[0]
    kernel, stride, padding = list(a["kernel"]), list(a["stride"]), list(a["padding"])
    if a.get("divisor") is None and not a.get("ceil_mode"):
        counted = int(a.get("include_pad", True))
        return b.call(
            "AveragePool",
            b.value(x),
            kernel_shape=kernel,
            strides=stride,
            pads=padding * 2,
            count_include_pad=counted,
        )
    sizes, results = x.aval.shape[2:], node.avals[0].shape[2:]
    after = [
        max(int((n - 1) * s + k - size - p), 0)
        for n, s, k, size, p in zip(results, stride, kernel, sizes, padding, strict=True)
    ]
    widths = [0, 0, *padding, 0, 0, *after]
    padded = b.call("Pad", b.value(x), b.ints(widths), b.constant(0, x.aval.dtype))
    means = b.call("AveragePool", padded, kernel_shape=kernel, strides=stride)
    with no_grad():
        right = np.asarray(node.op(wrap(np.ones((1, 1, *sizes))), **a).detach().numpy())
    own = _means(np.ones(sizes), padding, after, kernel, stride, right.shape[2:])
    return b.call("Mul", means, b.constant(right / own, x.aval.dtype))


def _means(
    x: np.ndarray,
    before: list[int],
    after: list[int],
    kernel: list[int],
    stride: list[int],
    shape: tuple[int, ...],
) -> np.ndarray:
    """Return the means of all windows of an image that is padded with zeros."""
    wide = np.pad(x, list(zip(before, after, strict=True)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, kernel)
    windows = windows[tuple(slice(0, (n - 1) * s + 1, s) for n, s in zip(shape, stride, strict=True))]
    return windows.mean(axis=tuple(range(-len(kernel), 0)))


def _is_static(node: Node) -> bool:
    return is_float(node) and are_numbers(node.args[0].aval.shape[2:])


def _supports_adaptive_average_pool(node: Node) -> bool:
    whole = all(s == 1 for s in node.attrs["sizes"])
    return is_float(node) and (whole or are_numbers(node.args[0].aval.shape[2:]))


@form("adaptive_avg_pool", when=_supports_adaptive_average_pool)
def write_adaptive_pool(b: Builder, node: Node) -> str:
    """Write ``GlobalAveragePool`` or ``AveragePool`` where windows have one size, else a product per axis."""
    x, sizes = node.args[0], node.attrs["sizes"]
    name = b.value(x)
    if all(s == 1 for s in sizes):
        return b.call("GlobalAveragePool", name)
    own = x.aval.shape[2:]
    if all(n % s == 0 for n, s in zip(own, sizes, strict=True)):
        kernel = [int(n // s) for n, s in zip(own, sizes, strict=True)]
        return b.call("AveragePool", name, kernel_shape=kernel, strides=kernel)
    for axis, (n, s) in enumerate(zip(own, sizes, strict=True), 2):
        matrix = np.zeros((s, n))
        for i in range(s):
            start, stop = i * n // s, -(-(i + 1) * n // s)
            matrix[i, start:stop] = 1 / (stop - start)
        name = along(b, name, len(x.aval.shape), axis, matrix, x.aval.dtype)
    return name


def along(b: Builder, name: str, rank: int, axis: int, matrix: np.ndarray, dtype: np.dtype) -> str:
    """Return the product of ``matrix`` with a value along one axis."""
    if axis == rank - 1:
        return b.call("MatMul", name, b.constant(matrix.T, dtype))
    order = list(range(rank))
    order[axis], order[-2] = order[-2], order[axis]
    moved = b.permuted(name, order)
    return b.permuted(b.call("MatMul", b.constant(matrix, dtype), moved), order)


_MODES = {"nearest": "nearest", "linear": "linear", "cubic": "cubic"}


def _resize(node: Node) -> list[float] | None:
    """Return the factor of each axis if ``Resize`` computes the same, else None."""
    plan, shape = node.attrs["plan"], node.args[0].aval.shape
    specs = [s for s in plan if s is not None]
    if (
        node.avals[0].dtype != FLOAT32
        or not specs
        or not are_numbers(shape[2:])
        or len(plan) != len(shape) - 2
    ):
        return None
    mode, align = specs[0][0], bool(specs[0][2]) if specs[0][0] in _MODES else False
    if any(s[0] != mode or s[0] not in _MODES or bool(s[2]) != align for s in specs):
        return None
    if mode == "cubic" and len(specs) != 2:
        return None
    factors = [1.0, 1.0]
    for spec, size in zip(plan, shape[2:], strict=True):
        if spec is None:
            factors.append(1.0)
            continue
        exact = np.float32(spec[1] / size) if spec[3] is None or align else np.float32(spec[3])
        if math.floor(float(exact) * size) != spec[1] or (
            mode == "nearest" and float(exact) != spec[1] / size
        ):
            return None
        factors.append(float(exact))
    return factors


@form("resample", when=_is_static)
def write_resample(b: Builder, node: Node) -> str:
    """Write ``Resize`` where it computes the same, else a look-up or a product per axis."""
    x, plan = node.args[0], node.attrs["plan"]
    name, factors = b.value(x), _resize(node)
    if factors is not None:
        spec = next(s for s in plan if s is not None)
        transformation = (
            "asymmetric" if spec[0] == "nearest" else "align_corners" if spec[2] else "half_pixel"
        )
        more: dict[str, Any] = {"nearest_mode": "floor"} if spec[0] == "nearest" else {}  # numbers, texts
        more |= {"cubic_coeff_a": -0.75} if spec[0] == "cubic" else {}
        return b.call(
            "Resize", name, "", b.constant(factors, FLOAT32), mode=_MODES[spec[0]],
            coordinate_transformation_mode=transformation, **more,
        )  # fmt: skip
    dtype, rank = x.aval.dtype, len(x.aval.shape)
    shape = tuple(s if isinstance(s, int) else 1 for s in x.aval.shape)
    for axis, table in tables(shape, plan, dtype, for_gradient=False):
        starts, places, weights = table
        if weights is None:
            name = b.call("Gather", name, b.constant(places, INT64), axis=axis)
            continue
        matrix = np.zeros((len(starts) - 1, shape[axis]))
        for row, (start, stop) in enumerate(itertools.pairwise(starts)):
            np.add.at(matrix[row], places[start:stop], weights[start:stop])
        name = along(b, name, rank, axis, matrix, dtype)
    return name


@form("fold", when=lambda node: is_float(node) and are_numbers(node.attrs["sizes"]), opset=18)
def write_fold(b: Builder, node: Node) -> str:
    """Write ``Col2Im``."""
    a = node.attrs
    return b.call(
        "Col2Im", b.value(node.args[0]), b.ints(a["sizes"]), b.ints(a["kernel"]), strides=list(a["stride"]),
        pads=[*a["padding"], *a["padding"]], dilations=list(a["dilation"]),
    )  # fmt: skip
