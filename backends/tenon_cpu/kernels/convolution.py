"""Convolution in one and two spatial axes by matrix products over pieces that stay in the cache.

With stride 1 an output row is kept as wide as a padded input row. The inputs of one position of the window
are then one contiguous run of a plane, so gathering windows (im2col) takes a few long copies instead of many
short ones; the few excess columns are dropped when the result is written. Other strides gather exactly.

Pieces are a few images, or a few rows of one; images are shared among threads (``tenon_cpu.threads``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tenon.ops import conv as _conv
from tenon.ops import conv_input_grad as _conv_input_grad
from tenon.ops import conv_weight_grad as _conv_weight_grad
from tenon.ops.convolution_checks import check_bias
from tenon_cpu.threads import scratch, split

_strided = np.lib.stride_tricks.as_strided
#: Bytes of gathered windows in a piece: half of a core's second-level cache.
_PIECE = 768 << 10
_FLOATS = frozenset("fd")
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of one group of a 2-d convolution, and of the pieces into which it is divided."""

    channels: int
    filters: int
    size: Pair
    out: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    wide: bool  # rows as wide as the padded input's
    images: int  # in a piece
    rows: int  # of output, in a piece

    @property
    def padded(self) -> Pair:
        """Sizes of the padded input."""
        return self.size[0] + 2 * self.padding[0], self.size[1] + 2 * self.padding[1]

    @property
    def direct(self) -> bool:
        """Whether the input itself is the matrix of windows."""
        return self.kernel == self.stride == (1, 1) and self.padding == (0, 0)

    def run(self, rows: int) -> Pair:
        """Return row width and total length of ``rows`` gathered output rows."""
        width = self.padded[1] if self.wide else self.out[1]
        return width, (rows - 1) * width + self.out[1]

    def positions(self) -> list[tuple[int, int, int]]:
        """Return ``(index, row, column)`` of every position in the window."""
        kh, kw = self.kernel
        dh, dw = self.dilation
        return [(i * kw + j, i * dh, j * dw) for i in range(kh) for j in range(kw)]


@functools.lru_cache(maxsize=256)
def layout(
    channels: int,
    filters: int,
    size: Pair,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    item: int,
) -> Layout:
    """Return the layout of a convolution whose arguments have been checked."""
    out = tuple(
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, t, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    )
    wide = stride == (1, 1) and size[1] + 2 * padding[1] <= 1.3 * out[1]
    width = size[1] + 2 * padding[1] if wide else out[1]
    depth = channels * math.prod(kernel) * item
    rows = max(1, min(out[0], _PIECE // max(depth * width, 1)))
    images = 1
    if rows == out[0]:
        images = max(1, min(_PIECE // max(depth * width * rows, 1), 2048 // max(width * rows, 1)))
    return Layout(channels, filters, size, out, kernel, stride, padding, dilation, wide, images, rows)  # type: ignore[arg-type]


def _pieces(plan: Layout, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(first image, count, first output row, count)`` of every piece between two images."""
    for n in range(start, stop, plan.images):
        for r in range(0, plan.out[0], plan.rows):
            yield n, min(plan.images, stop - n), r, min(plan.rows, plan.out[0] - r)


def _planes(plan: Layout, x: np.ndarray, n: int, m: int) -> np.ndarray:
    """Return images ``n`` to ``n + m``, padded, as ``[m, C, H, W]`` with contiguous planes."""
    if plan.padding == (0, 0) and x.strides[3] == x.itemsize and x.strides[2] == x.itemsize * x.shape[3]:
        return x[n : n + m]
    (h, w), (ph, pw) = plan.padded, plan.padding
    buffer = scratch.get("planes", (m, plan.channels, h, w), x.dtype)
    if ph:
        buffer[:, :, :ph] = 0
        buffer[:, :, h - ph :] = 0
    if pw:
        buffer[:, :, :, :pw] = 0
        buffer[:, :, :, w - pw :] = 0
    buffer[:, :, ph : h - ph, pw : w - pw] = x[n : n + m]
    return buffer


def _gather(plan: Layout, planes: np.ndarray, r: int, rows: int) -> np.ndarray:
    """Return the windows of ``rows`` output rows from ``r`` as a matrix ``[C * K, images * length]``."""
    m = planes.shape[0]
    width, length = plan.run(rows)
    if plan.direct and m == 1:
        return planes.reshape(plan.channels, -1)[:, r * width : r * width + length]
    positions = plan.positions()
    if plan.wide:
        windows = scratch.get("windows", (plan.channels, len(positions), m, length), planes.dtype)
        flat = planes.reshape(m, plan.channels, -1)  # a view: planes are contiguous
        for k, i, j in positions:
            start = (r + i) * width + j
            windows[:, k] = flat[:, :, start : start + length].transpose(1, 0, 2)
    else:
        windows = scratch.get("windows", (plan.channels, len(positions), m, rows, plan.out[1]), planes.dtype)
        for k, i, j in positions:
            windows[:, k] = _input_of_position(plan, planes, r, rows, i, j).transpose(1, 0, 2, 3)
    return windows.reshape(plan.channels * len(positions), m * length)


def _input_of_position(plan: Layout, planes: np.ndarray, r: int, rows: int, i: int, j: int) -> np.ndarray:
    """Return the view of ``planes`` at position ``(i, j)`` of the windows of ``rows`` output rows from
    ``r``."""
    (sh, sw), columns = plan.stride, plan.out[1]
    top = r * sh + i
    return planes[:, :, top : top + (rows - 1) * sh + 1 : sh, j : j + (columns - 1) * sw + 1 : sw]


def _rows_of(plan: Layout, matrix: np.ndarray, m: int, rows: int) -> np.ndarray:
    """View a matrix ``[X, images * length]`` as ``[images, X, rows, columns]``, without the excess
    columns."""
    width, length = plan.run(rows)
    item = matrix.itemsize
    strides = (length * item, matrix.strides[0], width * item, item)
    return _strided(matrix, (m, matrix.shape[0], rows, plan.out[1]), strides)


def _forward(
    plan: Layout, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, out: np.ndarray
) -> None:
    """Compute ``out[N, O, H', W']`` of one group."""
    matrix = weight.reshape(plan.filters, -1)
    shift = None if bias is None else bias.reshape(-1, 1, 1)

    def work(start: int, stop: int) -> None:
        for n, m, r, rows in _pieces(plan, start, stop):
            planes = _planes(plan, x, n, m)
            windows = _gather(plan, planes, r, rows)
            target = out[n : n + m, :, r : r + rows]
            product = scratch.get("product", (plan.filters, windows.shape[1]), x.dtype)
            np.matmul(matrix, windows, out=product)
            view = _rows_of(plan, product, m, rows)
            if shift is None:
                target[...] = view
            else:
                np.add(view, shift, out=target)

    split(work, x.shape[0])


def _gradient_matrix(plan: Layout, g: np.ndarray, n: int, m: int, r: int, rows: int) -> np.ndarray:
    """Return rows of ``g`` as a matrix ``[O, images * length]``, with zeros in the excess columns."""
    width, length = plan.run(rows)
    part = g[n : n + m, :, r : r + rows]
    if m == 1 and width == plan.out[1] and part.strides[2:] == (width * g.itemsize, g.itemsize):
        return _strided(part, (plan.filters, length), (g.strides[1], g.itemsize))
    buffer = scratch.get("spread", (plan.filters, m * length), g.dtype)
    if width != plan.out[1]:
        buffer.fill(0)
    _rows_of(plan, buffer, m, rows)[...] = part
    return buffer


def _input_grad(plan: Layout, g: np.ndarray, weight: np.ndarray, dx: np.ndarray) -> None:
    """Compute ``dx[N, C, H, W]`` of one group."""
    matrix = np.ascontiguousarray(weight.reshape(plan.filters, -1).T)
    positions = plan.positions()
    (h, w), (ph, pw) = plan.padded, plan.padding

    def work(start: int, stop: int) -> None:
        padded_dx = np.empty(0, g.dtype)
        for n, m, r, rows in _pieces(plan, start, stop):
            if r == 0:
                padded_dx = scratch.get("whole", (m, plan.channels, h, w), g.dtype)
                padded_dx.fill(0)
            spread = _gradient_matrix(plan, g, n, m, r, rows)
            windows = scratch.get("windows", (matrix.shape[0], spread.shape[1]), g.dtype)
            np.matmul(matrix, spread, out=windows)
            _add_windows(
                plan, padded_dx, windows.reshape(plan.channels, len(positions), m, -1), positions, r, rows
            )
            if r + rows == plan.out[0]:
                dx[n : n + m] = padded_dx[:, :, ph : h - ph, pw : w - pw]

    split(work, g.shape[0])


def _add_windows(
    plan: Layout,
    padded_dx: np.ndarray,
    windows: np.ndarray,
    positions: list[tuple[int, int, int]],
    r: int,
    rows: int,
) -> None:
    """Add windows ``[C, K, images, length]`` to the elements from which they were gathered (col2im)."""
    m, width = padded_dx.shape[0], padded_dx.shape[3]
    flat = padded_dx.reshape(m, plan.channels, -1)
    for k, i, j in positions:
        if plan.wide:
            start = (r + i) * width + j
            view = flat[:, :, start : start + windows.shape[3]]
            np.add(view, windows[:, k].transpose(1, 0, 2), out=view)
        else:
            view = _input_of_position(plan, padded_dx, r, rows, i, j)
            part = windows[:, k].reshape(plan.channels, m, rows, plan.out[1]).transpose(1, 0, 2, 3)
            np.add(view, part, out=view)


def _weight_grad(plan: Layout, x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return the weight's gradient of one group, as ``[C * K, O]``."""
    depth = plan.channels * math.prod(plan.kernel)
    parts: list[tuple[int, np.ndarray]] = []

    def work(start: int, stop: int) -> None:
        total = np.zeros((depth, plan.filters), x.dtype)
        product = np.empty_like(total)
        for n, m, r, rows in _pieces(plan, start, stop):
            windows = _gather(plan, _planes(plan, x, n, m), r, rows)
            np.matmul(windows, _gradient_matrix(plan, g, n, m, r, rows).T, out=product)
            total += product
        parts.append((start, total))

    split(work, x.shape[0])
    ordered = [total for _, total in sorted(parts, key=lambda part: part[0])]
    return functools.reduce(np.add, ordered)


def _planar(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the arrays of a 1-d convolution as those of a 2-d one of height 1."""
    return tuple(a[:, :, None] if a.ndim == 3 else a for a in arrays)


def _pairs(
    rank: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> tuple[Pair, Pair, Pair]:
    if rank == 2:
        return (stride[0], stride[1]), (padding[0], padding[1]), (dilation[0], dilation[1])
    return (1, stride[0]), (0, padding[0]), (1, dilation[0])


def takes(x: np.ndarray, y: np.ndarray, stride: Sequence[int]) -> bool:
    """Whether the kernels below support two arrays and the strides of a convolution."""
    return (
        len(stride) in (1, 2) and x.dtype is y.dtype and x.dtype.char in _FLOATS and x.size > 0 and y.size > 0
    )


def conv(
    x: np.ndarray,
    weight: np.ndarray,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Compute the op ``conv``."""
    return convolution(x, weight, None, stride=stride, padding=padding, dilation=dilation, groups=groups)


def convolution(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Compute the op ``convolution``; the bias is added when the result is written."""
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shape = _conv.infer(x, weight, **attrs).shape
    if bias is not None:
        check_bias(weight, bias, weight.shape[0])
    out = np.empty(shape, x.dtype)
    planar_x, window, target = _planar(x, weight, out)
    plan = _plan(planar_x, window, groups, *_pairs(len(stride), stride, padding, dilation))
    for c, o in _groups(groups, plan):
        _forward(plan, planar_x[:, c], window[o], None if bias is None else bias[o], target[:, o])
    return out


def _plan(
    x: np.ndarray,
    weight: np.ndarray,
    groups: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Layout:
    return layout(
        weight.shape[1],
        weight.shape[0] // groups,
        x.shape[2:],
        weight.shape[2:],
        stride,
        padding,
        dilation,
        x.itemsize,
    )


def _groups(groups: int, plan: Layout) -> Iterator[tuple[slice, slice]]:
    """Yield the ranges of channels and filters of every group."""
    for i in range(groups):
        yield (
            slice(i * plan.channels, (i + 1) * plan.channels),
            slice(i * plan.filters, (i + 1) * plan.filters),
        )


def conv_input_grad(
    g: np.ndarray,
    weight: np.ndarray,
    *,
    sizes: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Compute the op ``conv_input_grad``."""
    attrs = {"sizes": sizes, "stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shape = _conv_input_grad.infer(g, weight, **attrs).shape
    dx = np.empty(shape, g.dtype)
    planar_g, window, target = _planar(g, weight, dx)
    plan = _plan(target, window, groups, *_pairs(len(stride), stride, padding, dilation))
    for c, o in _groups(groups, plan):
        _input_grad(plan, planar_g[:, o], window[o], target[:, c])
    return dx


def conv_weight_grad(
    x: np.ndarray,
    g: np.ndarray,
    *,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Compute the op ``conv_weight_grad``."""
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shape = _conv_weight_grad.infer(x, g, **attrs).shape
    planar_x, planar_g = _planar(x, g)
    window = kernel if len(kernel) == 2 else (1, *kernel)
    plan = layout(
        shape[1],
        shape[0] // groups,
        planar_x.shape[2:],
        tuple(window),
        *_pairs(len(stride), stride, padding, dilation),
        x.itemsize,
    )
    parts = [_weight_grad(plan, planar_x[:, c], planar_g[:, o]).T for c, o in _groups(groups, plan)]
    gradient = parts[0] if groups == 1 else np.concatenate(parts)
    return np.ascontiguousarray(gradient).reshape(shape)


__all__ = ["conv", "conv_input_grad", "conv_weight_grad", "convolution"]
