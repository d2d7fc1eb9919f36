"""Pooling over windows of one size: maximum and average.

``x[N, C, *S]``; ``kernel``, ``stride``, ``padding`` and ``dilation`` have one entry per spatial axis. With
``ceil_mode`` a last window that starts inside the padded input but ends outside it counts too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import EllipsisType

import numpy as np

from tenon.compat.saved_readers import attr
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.sharding_rule import along
from tenon.engine.types import Array, ArrayNamespace, Operand
from tenon.errors import ShapeError
from tenon.ops.convolution import positions_in, windows
from tenon.ops.convolution_checks import extent
from tenon.ops.dtype_queries import in_float32, is_short

_INT = np.dtype(np.int64)


def pooled_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Return the number of windows along an axis."""
    room = size + 2 * padding - extent(kernel, dilation) + (stride - 1 if ceil_mode else 0)
    count = room // stride + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1  # a window must start inside the input or its left padding
    return count


def pooled_sizes(
    x: Operand,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[int, ...]:
    """Return the spatial sizes of the output; raise PyTorch's errors if the arguments are invalid."""
    rank = len(kernel)
    if len(x.shape) == rank + 2 and 0 in x.shape[1:]:
        raise ShapeError(
            f"Expected {rank + 1}D or {rank + 2}D (batch mode) tensor with optional 0 dim batch size for"
            f" input, but got: {list(x.shape)}"
        )
    if len(x.shape) != rank + 2:
        raise ShapeError(
            f"non-empty {rank + 1}D or {rank + 2}D (batch mode) tensor expected for input, got"
            f" {list(x.shape)}"
        )
    for name, values in (("stride", stride), ("kernel_size", kernel), ("dilation", dilation)):
        least = min(values)
        if least < 1:
            zero = "stride should not be zero: " if name == "stride" and least == 0 else ""
            verb = "must" if rank == 1 else "should"
            raise ShapeError(f"{zero}{name} {verb} be greater than zero, but got {least}")
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p < 0:
            raise ShapeError(f"pad must be non-negative, but got pad={p}")
        if p > extent(k, d) // 2:
            raise ShapeError(
                f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and"
                f" dilation={d}"
            )
    sizes = tuple(
        pooled_size(s, k, t, p, d, ceil_mode)
        for s, k, t, p, d in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    )
    if min(sizes) < 1:
        input_size, output_size = ("x".join(map(str, (x.shape[1], *v))) for v in (x.shape[2:], sizes))
        raise ShapeError(
            f"Given input size: ({input_size}). Calculated output size: ({output_size}). Output size is too"
            " small"
        )
    return sizes


def pad_to_windows(
    xp: ArrayNamespace,
    x: Array,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    value: float,
) -> Array:
    """Pad ``x`` with ``value``, as far as the windows of an output of ``sizes`` reach."""
    reach = tuple(
        max((n - 1) * t + extent(k, d), p + s)
        for n, t, k, d, p, s in zip(sizes, stride, kernel, dilation, padding, x.shape[2:], strict=True)
    )
    if reach == tuple(x.shape[2:]):
        return x
    result = xp.full((*x.shape[:2], *reach), value, x.dtype)
    result[(..., *_inner(x.shape[2:], padding))] = x
    return result


def _inner(sizes: tuple[int, ...], padding: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the slices of the unpadded elements."""
    return tuple(slice(p, p + s) for s, p in zip(sizes, padding, strict=True))


def _regions(
    sizes: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Iterator[tuple[EllipsisType | slice, ...]]:
    """Yield, for every position in the window, the strided region of the padded input with its elements."""
    for position in positions_in(kernel):
        yield (
            ...,
            *(
                slice(i * d, i * d + (n - 1) * t + 1, t)
                for i, d, n, t in zip(position, dilation, sizes, stride, strict=True)
            ),
        )


def _wide(x: Array) -> Array:
    """Return 16-bit floats in float32, in which sums are accurate."""
    return x.astype(np.float32) if is_short(x) else x


def lowest(dtype: np.dtype) -> float:
    """Return the smallest value of the dtype, as padding that never exceeds an element."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -math.inf


def window_argmax(xp: ArrayNamespace, elements: Array) -> Array:
    """Return the index of the first largest element along the last axis, or of the last NaN, as in
    PyTorch."""
    chosen = elements.argmax(axis=-1)
    is_nan = xp.not_equal(elements, elements)[..., ::-1]
    return xp.where(is_nan.any(axis=-1), elements.shape[-1] - 1 - is_nan.argmax(axis=-1), chosen)


class MaxPool(Primitive):
    """Largest element of each window; NaN if there is one."""

    kind = Kind.WINDOW
    follows = 1
    saves = ("x", "out")
    repeats = True  # PyTorch reads the saved indices of the maxima
    computes_in_float32 = True
    autocast = "float32 in space"
    autocast_cuda = ""

    def sharding_rule(self, x, *, kernel, **attrs):
        """Samples and channels are independent."""
        return along(x.shape, range(-len(kernel), 0), filled=True)

    def infer(self, x, *, kernel, stride, padding, dilation, ceil_mode=False):
        """The pooled sizes."""
        sizes = pooled_sizes(x, kernel, stride, padding, dilation, ceil_mode)
        return Aval((*x.shape[:2], *sizes), x.dtype)

    def forward(self, xp, x, *, kernel, stride, padding, dilation, ceil_mode=False):
        """One maximum per position in the window."""
        sizes = pooled_sizes(x, kernel, stride, padding, dilation, ceil_mode)
        padded = pad_to_windows(xp, x, sizes, kernel, stride, padding, dilation, lowest(x.dtype))
        regions = _regions(sizes, kernel, stride, dilation)
        result = padded[next(regions)].copy()
        for region in regions:
            xp.maximum(result, padded[region], out=result)
        return result

    def vjp_x(self, f, g, out, x, **attrs):
        return f.max_pool_grad(g, x, out, **attrs)

    def torch_name(self, args, attrs):
        """By number of spatial axes."""
        return f"MaxPool{max(len(attrs['kernel']), 2)}DWithIndicesBackward0"


class MaxPoolGrad(Primitive):
    """``g`` at the first largest element of each window (its last NaN), summed where windows overlap."""

    kind = Kind.WINDOW
    follows = 2
    inputs = ("g", "x", "out")
    saves = ("x",)
    reuses = (1,)  # the position of a maximum is determined before its element is overwritten
    computes_in_float32 = True

    def sharding_rule(self, g, x, out, *, kernel, **attrs):
        """Samples and channels are independent."""
        return along(x.shape, range(-len(kernel), 0), inputs=3, filled=True)

    def infer(self, g, x, out, *, kernel, stride, padding, dilation, ceil_mode=False):
        """The pooled input's shape."""
        return Aval(tuple(x.shape), g.dtype)

    @in_float32
    def forward(self, xp, g, x, out, *, kernel, stride, padding, dilation, ceil_mode=False):
        """One pass per position in the window; each window passes on its gradient once."""
        sizes = tuple(g.shape[2:])
        padded = pad_to_windows(xp, x, sizes, kernel, stride, padding, dilation, lowest(x.dtype))
        result = xp.zeros(padded.shape, g.dtype)
        remaining = g.copy()
        zero = g.dtype.type(0)
        inside = None
        if padded is not x:  # padding may equal the smallest element, but gets no gradient
            inside = xp.zeros(padded.shape[2:], np.bool_)
            inside[_inner(x.shape[2:], padding)] = True
        regions = list(_regions(sizes, kernel, stride, dilation))
        nan_regions = reversed(regions) if xp.not_equal(out, out).any() else ()
        for region, maxima in (*((r, None) for r in nan_regions), *((r, out) for r in regions)):
            elements = padded[region]
            chosen = xp.not_equal(elements, elements) if maxima is None else xp.equal(elements, maxima)
            if inside is not None:
                chosen = xp.logical_and(chosen, inside[region])
            result[region] += xp.where(chosen, remaining, zero)
            remaining[chosen] = 0
        return xp.ascontiguousarray(result[(..., *_inner(x.shape[2:], padding))])

    def vjp_g(self, f, g, out, gradient, x, pooled, **attrs):
        shape = tuple(gradient.shape)
        indices = f.max_pool_indices(x, **attrs)
        flat = (*shape[:2], math.prod(shape[2:]))
        picked = f.gather(
            f.reshape(g, shape=(*shape[:2], math.prod(x.shape[2:]))), f.reshape(indices, shape=flat), axis=2
        )
        return f.reshape(picked, shape=shape)


class MaxPoolIndices(Primitive):
    """The index into the flattened spatial axes of each window's first largest element (its last NaN)."""

    kind = Kind.WINDOW
    follows = 1
    autocast = "float32 in space"
    autocast_cuda = ""

    def sharding_rule(self, x, *, kernel, **attrs):
        """Samples and channels are independent."""
        return along(x.shape, range(-len(kernel), 0), filled=True)

    def infer(self, x, *, kernel, stride, padding, dilation, ceil_mode=False):
        """int64 in pooled sizes."""
        sizes = pooled_sizes(x, kernel, stride, padding, dilation, ceil_mode)
        return Aval((*x.shape[:2], *sizes), _INT)

    def forward(self, xp, x, *, kernel, stride, padding, dilation, ceil_mode=False):
        """The argmax in each window, converted to indices of the unpadded input."""
        sizes = pooled_sizes(x, kernel, stride, padding, dilation, ceil_mode)
        padded = pad_to_windows(xp, x, sizes, kernel, stride, padding, dilation, lowest(x.dtype))
        reach = tuple(
            (n - 1) * t + extent(k, d) for n, t, k, d in zip(sizes, stride, kernel, dilation, strict=True)
        )
        elements = windows(xp, padded[(..., *(slice(0, r) for r in reach))], kernel, stride, dilation)
        chosen = window_argmax(xp, elements.reshape(*elements.shape[: -len(kernel)], math.prod(kernel)))
        flat = xp.zeros(chosen.shape, _INT)
        for axis, offset in enumerate(xp.unravel_index(chosen, tuple(kernel))):
            first = xp.arange(sizes[axis]) * stride[axis] - padding[axis]
            first = first.reshape(-1, *(1,) * (len(sizes) - axis - 1)) + offset * dilation[axis]
            # Where no element is larger than the padding, the first element of the window is chosen.
            flat = flat * x.shape[2 + axis] + xp.where(first < 0, first % dilation[axis], first)
        return flat


class AvgPool(Primitive):
    """Mean of each window. With ``include_pad`` padding counts; ``divisor`` replaces the number of
    elements."""

    kind = Kind.WINDOW
    follows = 1
    computes_in_float32 = True
    autocast = "float32 in space"
    autocast_cuda = ""
    saved_names = {
        "kernel_size": attr("kernel"), "count_include_pad": attr("include_pad"),
        "divisor_override": attr("divisor"),
    }  # fmt: skip

    def sharding_rule(self, x, *, kernel, **attrs):
        """Samples and channels are independent."""
        return along(x.shape, range(-len(kernel), 0), filled=True)

    def infer(self, x, *, kernel, stride, padding, ceil_mode=False, include_pad=True, divisor=None):
        """The pooled sizes."""
        sizes = pooled_sizes(x, kernel, stride, padding, (1,) * len(kernel), ceil_mode)
        return Aval((*x.shape[:2], *sizes), x.dtype)

    def forward(self, xp, x, *, kernel, stride, padding, ceil_mode=False, include_pad=True, divisor=None):
        """One addition per position in the window, then one division."""
        ones, dtype = (1,) * len(kernel), x.dtype
        sizes = pooled_sizes(x, kernel, stride, padding, ones, ceil_mode)
        x = _wide(x)
        padded = pad_to_windows(xp, x, sizes, kernel, stride, padding, ones, 0)
        regions = _regions(sizes, kernel, stride, ones)
        result = padded[next(regions)].copy()
        for region in regions:
            result += padded[region]
        parts = _divisors(xp, x.shape[2:], sizes, kernel, stride, padding, include_pad, divisor, x.dtype)
        if x.dtype.kind in "iu":  # rounded towards zero, as C divides
            return xp.sign(result) * xp.sign(parts) * (xp.abs(result) // xp.abs(parts))
        result /= parts
        return result.astype(dtype, copy=False)

    def vjp_x(self, f, g, out, x, **attrs):
        return f.avg_pool_grad(g, shape=tuple(x.shape), **attrs)

    def torch_name(self, args, attrs):
        """By number of spatial axes."""
        return f"AvgPool{max(len(attrs['kernel']), 2)}DBackward0"


def _divisors(
    xp: ArrayNamespace,
    inputs: Array,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    include_pad: bool,
    divisor: float | None,
    dtype: np.dtype,
) -> Array:
    """Return the divisor of each window's sum: one number, or an array over the output positions."""
    if divisor is not None:
        return dtype.type(divisor)
    counts = []
    for size, n, k, t, p in zip(inputs, sizes, kernel, stride, padding, strict=True):
        start = np.arange(n) * t - p
        stop = np.minimum(start + k, size + p)
        counts.append(stop - start if include_pad else np.minimum(stop, size) - np.maximum(start, 0))
    if all((c == k).all() for c, k in zip(counts, kernel, strict=True)):
        return dtype.type(math.prod(kernel))
    area = counts[0]
    for c in counts[1:]:
        area = np.multiply.outer(area, c)
    return xp.asarray(area.astype(dtype))


class AvgPoolGrad(Primitive):
    """Each window's ``g`` over its divisor, added to all elements of the window: the transpose of
    ``avg_pool``."""

    kind = Kind.WINDOW
    follows = 1
    inputs = ("g",)
    computes_in_float32 = True

    def sharding_rule(self, g, *, shape, kernel, **attrs):
        """Samples and channels are independent."""
        return along(shape, range(-len(kernel), 0), linear="jointly", shape_attr="shape", filled=True)

    def infer(self, g, *, shape, **attrs):
        """The pooled input's shape."""
        return Aval(tuple(shape), g.dtype)

    def forward(
        self, xp, g, *, shape, kernel, stride, padding, ceil_mode=False, include_pad=True, divisor=None
    ):
        """One strided addition per position in the window."""
        ones, sizes, dtype = (1,) * len(kernel), tuple(g.shape[2:]), g.dtype
        g = _wide(g)
        part = g / _divisors(xp, shape[2:], sizes, kernel, stride, padding, include_pad, divisor, g.dtype)
        reach = tuple(
            max((n - 1) * t + k, p + s)
            for n, t, k, p, s in zip(sizes, stride, kernel, padding, shape[2:], strict=True)
        )
        result = xp.zeros((*shape[:2], *reach), g.dtype)
        for region in _regions(sizes, kernel, stride, ones):
            result[region] += part
        return xp.ascontiguousarray(result[(..., *_inner(shape[2:], padding))]).astype(dtype, copy=False)

    def vjp_g(self, f, g, out, gradient, *, shape, **attrs):
        return f.avg_pool(g, **attrs)


max_pool, max_pool_grad, max_pool_indices = MaxPool(), MaxPoolGrad(), MaxPoolIndices()
avg_pool, avg_pool_grad = AvgPool(), AvgPoolGrad()
