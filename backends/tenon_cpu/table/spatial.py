"""Rows of the table: convolution, pooling, resampling and grid sampling."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from tenon import ops
from tenon.extend import Attr, Condition, Kernel, KernelRow, KernelTable, requires, size_at_least
from tenon.ops.spatial.resampling import pads_few_elements
from tenon_cpu.jit.eager_ops import pooling as eager_pooling
from tenon_cpu.jit.eager_ops import spatial as eager_spatial
from tenon_cpu.jit.eager_ops.calls import MIN_ELEMENTS
from tenon_cpu.jit.short_floats.ops import FLOAT, SHORT
from tenon_cpu.kernels import convolution as numpy_convolution
from tenon_cpu.kernels import pooling as numpy_pooling
from tenon_cpu.kernels.blocks import plain
from tenon_cpu.onednn import available as onednn
from tenon_cpu.onednn import convolution, pooling, winograd
from tenon_cpu.table.conditions import floats, indices, rank, same_shape

Array = np.ndarray
#: The dtypes that ``convolution.FLOATS`` names.
_FLOATS = frozenset((FLOAT, *SHORT))
#: The end of the names of rows that convert arrays first: the kernel then decides as the first two rows do.
_FASTER = ", by Winograd's algorithm where that is faster"
_LARGE = (size_at_least("x", MIN_ELEMENTS), *floats("x"))
_LINES = rank("x", "== 3", "x has one axis of space")
_WINDOWS_2X2 = requires(eager_pooling.is_2x2, "windows of 2 by 2 with stride 2")
_SPACES = rank("x", "<= 5")
_ALL_SIZES = Condition("0 not in sizes", "no size is 0", {}, "sizes")


def _reads(argument: str) -> Condition:
    """Require an array that oneDNN can read, if necessary after a copy or conversion."""
    names = ", ".join(sorted(convolution.FLOATS))
    return Condition(
        f"{argument}.size and {argument}.dtype in floats",
        f"{argument} of {names}, not empty",
        {"floats": _FLOATS},
        f"{argument}.dtype",
    )


def _by_winograd(name: str) -> Condition:
    """Require a call of the convolution ``name`` that Winograd's algorithm computes faster."""
    kind, first, second, sizes = _KINDS[name]
    window = "tuple(kernel)" if kind == "weight" else "weight.shape[2:]"
    geometry = "tuple(stride), tuple(padding), tuple(dilation), groups"
    return Condition(
        f"{window} == (3, 3) and {first}.dtype == float32"
        f" and is_faster_for({kind!r}, {first}.shape, {second}.shape, {sizes}, {geometry})",
        "float32, windows of 3 by 3, stride and dilation 1, no groups, whole blocks of channels, and fewer"
        " operations and bytes by Winograd's algorithm",
        {"float32": FLOAT, "is_faster_for": winograd.is_faster_for},
        f"{first}.dtype, {first}.shape, {second}.shape",
    )


#: For each convolution: its kind for oneDNN, its two arrays, and the sizes that they do not show.
_KINDS = {
    "conv": ("forward", "x", "weight", "()"),
    "convolution": ("forward", "x", "weight", "()"),
    "conv_input_grad": ("input", "g", "weight", "tuple(sizes)"),
    "conv_weight_grad": ("weight", "x", "g", "tuple(kernel)"),
}


def _one_each(x: Array, sizes: Sequence[int]) -> bool:
    return x.ndim == len(sizes) + 2 and set(sizes) == {1}


def _one_gradient_each(g: Array, shape: Sequence[int]) -> bool:
    return g.ndim == len(shape) and set(g.shape[2:]) == {1} and g.dtype.char in "fd" and 0 not in shape


def _many_edges(plan: Attr) -> bool:
    return not pads_few_elements(plan)


def _side_by_side(
    g: Array,
    x: Array,
    out: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> bool:
    arguments = (x, kernel, stride, padding, dilation, ceil_mode)
    return numpy_pooling.side_by_side(*arguments) and plain(g, x, out)


def _matches_2x2(g: Array, x: Array) -> bool:
    return bool(g.shape == eager_pooling.pooled_2x2_shape(x))


def _convolution(x: Array, weight: Array, bias: Array | None, **attrs: Attr) -> Array:
    y: Array = ops.conv.forward(np, x, weight, **attrs)
    return y if bias is None else y + bias.reshape(-1, *(1,) * (y.ndim - 2))


_REFERENCE: dict[str, Kernel] = {
    "conv": functools.partial(ops.conv.forward, np),
    "convolution": _convolution,
    "conv_input_grad": functools.partial(ops.conv_input_grad.forward, np),
    "conv_weight_grad": functools.partial(ops.conv_weight_grad.forward, np),
}


def _convolutions(name: str) -> list[KernelRow]:
    """Return the rows of a convolution or of one of its gradients."""
    op = getattr(ops, name)
    kernel, by_pieces = getattr(convolution, name), getattr(numpy_convolution, name)
    arrays = ", ".join(op.inputs)
    first, second = op.inputs[:2]
    copies = Condition(
        f"{first}.dtype.itemsize < 8 and readable_as_copies({arrays})", "copies in C order help oneDNN",
        {"readable_as_copies": convolution.readable_as_copies},
    )  # fmt: skip
    short = Condition(
        f"{first}.dtype.itemsize == 2 and one_short_dtype({arrays})", "16-bit floats of one dtype, not empty",
        {"one_short_dtype": convolution.one_short_dtype},
    )  # fmt: skip
    pieces = Condition(
        f"takes({first}, {second}, stride)",
        "one or two axes of space, float32 or float64, not empty",
        {"takes": numpy_convolution.takes},
        f"{first}.dtype, {first}.shape",
    )
    planes = Condition("len(stride) < 3", "one or two axes of space", {}, "len(stride)")
    declines = "arrays that oneDNN cannot read, and where it has only a slow kernel"
    slow = "where oneDNN has only a slow kernel"
    return [
        KernelRow(
            "oneDNN, by Winograd's algorithm",
            kernel,
            (_by_winograd(name),),
            declines,
            onednn,
        ),
        KernelRow("oneDNN", kernel, (_reads(first),), declines, onednn),
        KernelRow(f"oneDNN, of copies{_FASTER}", convolution.of_copies(kernel), (copies,), slow, onednn),
        KernelRow(f"oneDNN, in float32{_FASTER}", convolution.in_float32(kernel), (short,), slow, onednn),
        KernelRow("NumPy, products of pieces", by_pieces, (pieces,)),
        KernelRow(
            "NumPy, products of pieces in float32",
            convolution.in_float32(by_pieces),
            (short, planes),
            installed=onednn,
        ),
        KernelRow(
            "reference, in float32", convolution.in_float32(_REFERENCE[name]), (short,), installed=onednn
        ),
    ]


def add_to(table: KernelTable) -> None:
    """Add the rows of this file's ops to ``table``."""
    for name in ("conv", "convolution", "conv_input_grad", "conv_weight_grad"):
        table.add(name, *_convolutions(name))
    _add_pools(table)
    many = requires(_many_edges, "many edges")
    table.add("resample", KernelRow("compiled, axis by axis", eager_spatial.resample, (*_LARGE, many)))
    grad = (size_at_least("g", MIN_ELEMENTS), many, *floats("g"))
    table.add("resample_grad", KernelRow("compiled, axis by axis", eager_spatial.resample_grad, grad))
    taps = (size_at_least("places", MIN_ELEMENTS), indices("places"))
    some = size_at_least("x", 1)
    table.add("tap_sum", KernelRow("compiled", eager_spatial.tap_sum, (*taps, *floats("x", "weights"), some)))
    table.add("tap_spread", KernelRow("compiled", eager_spatial.tap_spread, (*taps, *floats("g", "weights"))))
    table.add("tap_dot", KernelRow("compiled", eager_spatial.tap_dot, (*taps, *floats("g", "x"), some)))
    grid = (size_at_least("grid", MIN_ELEMENTS), *floats("grid"))
    table.add("grid_places", KernelRow("compiled, axis by axis", eager_spatial.grid_places, grid))
    table.add("grid_weights", KernelRow("compiled, axis by axis", eager_spatial.grid_weights, grid))


def _add_pools(table: KernelTable) -> None:
    overlapping = requires(pooling.overlapping, "windows of planes or volumes that overlap, x in C order")
    both = requires(pooling.overlapping_grad, "windows of planes or volumes that overlap, arrays in C order")
    nan = "NaN or the lowest finite number in the result, and where oneDNN has only a slow kernel"
    table.add(
        "max_pool",
        KernelRow("oneDNN", pooling.max_pool, (*floats("x")[:1], overlapping), nan, onednn),
        KernelRow("compiled, 1-d", eager_pooling.max_pool_1d, (_LINES, *_LARGE)),
        KernelRow("compiled, windows of 2 by 2", eager_pooling.max_pool_2x2, (*_LARGE, _WINDOWS_2X2)),
        KernelRow(
            "NumPy, rows and then columns",
            numpy_pooling.max_pool,
            (requires(numpy_pooling.side_by_side, "planes in C order, windows that do not overlap"),),
        ),
    )
    arrays = (size_at_least("x", MIN_ELEMENTS), *floats("g", "x", "out"), same_shape("g", "out"))
    table.add(
        "max_pool_grad",
        KernelRow("oneDNN", pooling.max_pool_grad, (*floats("x")[:1], both), nan, onednn),
        KernelRow("compiled, 1-d", eager_pooling.max_pool_1d_grad, (_LINES, *arrays)),
        KernelRow(
            "compiled, windows of 2 by 2",
            eager_pooling.max_pool_2x2_grad,
            (*arrays, _WINDOWS_2X2, requires(_matches_2x2, "one gradient for each window")),
        ),
        KernelRow("compiled", eager_pooling.max_pool_grad, (rank("x", ">= 4"), *arrays)),
        KernelRow(
            "NumPy, by bits",
            numpy_pooling.max_pool_grad,
            (requires(_side_by_side, "planes in C order, windows that do not overlap"),),
            "NaN in the result",
        ),
    )
    means = requires(_one_each, "one mean of each plane")
    table.add(
        "adaptive_avg_pool",
        KernelRow(
            "compiled",
            eager_pooling.adaptive_avg_pool,
            (means, size_at_least("x", MIN_ELEMENTS), Condition("x.flags.carray", "x is in C order")),
        ),
        KernelRow(
            "NumPy, add.reduce",
            numpy_pooling.adaptive_avg_pool,
            (means, Condition("x.dtype.char in 'fd' and x.size", "float32 or float64, not empty")),
        ),
    )
    table.add(
        "adaptive_avg_pool_grad",
        KernelRow(
            "NumPy, one number a plane",
            numpy_pooling.adaptive_avg_pool_grad,
            (requires(_one_gradient_each, "one gradient for each plane, of float32 or float64"),),
        ),
    )
    table.add(
        "max_pool_indices",
        KernelRow("compiled, window by window", eager_spatial.max_pool_indices, (*_LARGE, _SPACES)),
    )
    table.add(
        "adaptive_max_pool_indices",
        KernelRow(
            "compiled, window by window",
            eager_spatial.adaptive_max_pool_indices,
            (*_LARGE, _SPACES, _ALL_SIZES),
        ),
    )
    table.add(
        "fractional_max_pool_indices",
        KernelRow(
            "compiled, window by window",
            eager_spatial.fractional_max_pool_indices,
            (*_LARGE, _ALL_SIZES),
        ),
    )


__all__ = ["add_to"]
