"""Spatial ops of large float32 arrays by compiled kernels: resampling, grids, pooling, scattering."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tenon.extend import ArrayNamespace, Attr, OpNamespace
from tenon.ops import adaptive_max_pool_indices as _adaptive
from tenon.ops import fractional_max_pool_indices as _fractional
from tenon.ops import grid_places as _grid_places
from tenon.ops import max_pool_indices as _max_pool_indices
from tenon.ops.scatter_extreme import extreme_identity
from tenon.ops.spatial.axis_tables import Table
from tenon.ops.spatial.grid import OFFSETS, products
from tenon.ops.spatial.max_pool_indices import adaptive_bounds, fractional_starts
from tenon.ops.spatial.resampling import Plan, apply_table, apply_tables, tables
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, MIN_ELEMENTS, fits, plain, share
from tenon_cpu.jit.loops import along_axis, grids, resampling
from tenon_cpu.jit.loops.vectors import REDUCTIONS

_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


def _along(xp: ArrayNamespace, x: np.ndarray, table: Table, axis: int) -> np.ndarray:
    """``apply_table``, which resamples one axis, by loops over rows, or over points if the axis is the
    last."""
    x = plain(x)
    starts, places, weights = table
    if not starts[-1] or not x.size:
        return apply_table(xp, x, table, axis)
    factors = np.ones(places.size, FLOAT) if weights is None else weights
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    out = np.empty((*x.shape[:axis], starts.size - 1, *x.shape[axis + 1 :]), FLOAT)
    inside = (inner,) if inner > 1 else ()
    lines = out.reshape(outer, starts.size - 1, *inside)
    arrays = (x.reshape(outer, x.shape[axis], *inside), starts, places, factors, lines)
    share(resampling.rows if inner > 1 else resampling.points, arrays, outer, 10 * out.size)
    return out


def resample(x: np.ndarray, *, plan: Plan) -> np.ndarray:
    """``x`` resampled along the axes of ``plan``, one after the other."""
    return apply_tables(np, x, tables(x.shape, plan, FLOAT, for_gradient=False), _along)


def resample_grad(g: np.ndarray, *, shape: tuple[int, ...], plan: Plan) -> np.ndarray:
    """The gradient of ``resample`` for an input of ``shape``."""
    return apply_tables(np, g, tables(shape, plan, FLOAT, for_gradient=True), _along)


def _blocks(places: np.ndarray) -> int:
    """The number of pieces of work of a kernel over blocks of places."""
    return int(places.shape[0] * -(-places.shape[2] // resampling.BLOCK))


def tap_sum(x: np.ndarray, weights: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The weighted sum of the cells at each place's taps."""
    out = np.empty((*x.shape[:2], places.shape[2]), FLOAT)
    arrays = (plain(x), plain(weights), places, out)
    share(resampling.tap_sum, arrays, _blocks(places), 10 * places.size * x.shape[1])
    return out


def tap_spread(g: np.ndarray, weights: np.ndarray, places: np.ndarray, *, cells: int) -> np.ndarray:
    """The gradient of ``tap_sum`` for its input."""
    out = np.zeros((*g.shape[:2], cells), FLOAT)
    arrays = (plain(g), plain(weights), places, out)
    share(resampling.tap_spread, arrays, g.shape[0] * g.shape[1], 10 * places.size * g.shape[1])
    return out


def tap_dot(g: np.ndarray, x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The gradient of ``tap_sum`` for its weights."""
    out = np.empty(places.shape, FLOAT)
    arrays = (plain(g), plain(x), places, out)
    share(resampling.tap_dot, arrays, _blocks(places), 10 * places.size * x.shape[1])
    return out


class _Axis:
    """One axis of a sampling grid, split into base elements, fractions of a step, and padding's slopes."""

    def __init__(self, grid: np.ndarray, axis: int, size: int, mode: str, padding: str, align: bool) -> None:
        self.size, self.padding = size, _PADDINGS[padding]
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        self.edges = (np.float32(low), np.float32(span), np.float32(size - 1))
        self.scale = (size - 1) / 2 if align else size / 2
        shape, count = grid.shape[:2], grid.shape[0] * grid.shape[1]
        self.base, self.fraction, self.slope = (np.empty(shape, FLOAT) for _ in range(3))
        numbers = (np.float32(self.scale), np.float32(0.0 if align else 0.5), *self.edges)
        folds = 0 if mode == "cubic" else self.padding
        outs = (self.base.reshape(-1), self.fraction.reshape(-1), self.slope.reshape(-1))
        points = grid.reshape(count, grid.shape[2])
        share(grids.split, (points, axis, *numbers, folds, int(mode == "nearest"), *outs), count, 40 * count)

    def places(self, offset: int, before: np.ndarray, mode: str) -> np.ndarray:
        """The flat indices of the taps at ``offset``, from those of the axes ``before``; -1 if outside."""
        out = np.empty(before.shape, INDEX)
        folds = self.padding if mode == "cubic" else 0
        arrays = (
            self.base.reshape(-1),
            np.float32(offset),
            *self.edges,
            folds,
            before.reshape(-1),
            self.size,
        )
        share(grids.places, (*arrays, out.reshape(-1)), out.size, 20 * out.size)
        return out


def _axes(grid: np.ndarray, sizes: Sequence[int], mode: str, padding: str, align: bool) -> list[_Axis]:
    grid, rank = plain(grid), len(sizes)
    return [_Axis(grid, rank - 1 - a, size, mode, padding, align) for a, size in enumerate(sizes)]


def grid_weights(f: OpNamespace, grid: np.ndarray, **attrs: Attr) -> np.ndarray:
    """The weights of all taps: the products of those along each axis."""
    return products(f, [a.fraction for a in _axes(grid, **attrs)], attrs["mode"])


def grid_places(grid: np.ndarray, **attrs: Attr) -> np.ndarray:
    """The flat indices of all taps, computed axis by axis; -1 if outside."""
    mode = attrs["mode"]
    out = np.empty(_grid_places.infer(grid, **attrs).shape, INDEX)
    outer, axes = [np.zeros(grid.shape[:2], INDEX)], _axes(grid, **attrs)
    for axis in axes[:-1]:
        outer = [axis.places(offset, before, mode) for before in outer for offset in OFFSETS[mode]]
    for number, before in enumerate(outer):
        for tap, offset in enumerate(OFFSETS[mode]):
            out[:, number * len(OFFSETS[mode]) + tap] = axes[-1].places(offset, before, mode)
    return out


def covers_other_axes(x: np.ndarray, index: np.ndarray, axis: int) -> bool:
    """Whether ``index`` has the shape of ``x`` but for ``axis``, and the kernels support the arrays."""
    if not x.ndim:
        return False
    around = x.shape[:axis] == index.shape[:axis] and x.shape[axis + 1 :] == index.shape[axis + 1 :]
    return max(x.size, index.size) >= MIN_ELEMENTS and around and index.dtype is INDEX and fits(x)


def _cut(x: np.ndarray, axis: int) -> np.ndarray:
    """``x`` as rows if ``axis`` is the last, else as ``[outer, size, inner]``."""
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    return x.reshape(outer, x.shape[axis], *((inner,) if axis != x.ndim - 1 else ()))


def gather(x: np.ndarray, index: np.ndarray, *, axis: int) -> np.ndarray:
    """The elements at ``index`` along ``axis``; declines if an index is out of range."""
    out, outside = np.empty(index.shape, FLOAT), np.zeros(1, np.uint8)
    arrays = (_cut(plain(x), axis), _cut(plain(index), axis), _cut(out, axis), outside)
    kernel = resampling.pick if axis == x.ndim - 1 else along_axis.pick
    share(kernel, arrays, arrays[0].shape[0], 10 * index.size)
    return NotImplemented if outside[0] else out


def scatter(
    x: np.ndarray, index: np.ndarray, y: np.ndarray | float, *, axis: int, reduce: str | None = None
) -> np.ndarray:
    """``x`` with ``y`` written at ``index`` along ``axis``, or combined; declines if one is out of range."""
    if not isinstance(y, np.ndarray):  # 0.0, in the gradient of ``scatter``
        y = np.full(index.shape, y, FLOAT)
    out, outside = np.array(x, order="C"), np.zeros(1, np.uint8)
    values, target, kernel = _cut(plain(y), axis), _cut(out, axis), along_axis.put
    if target.ndim == 2:
        kernel, places = resampling.put, _cut(plain(index), axis)
    elif all(not step or a == axis for a, step in enumerate(index.strides)):  # one index for each row
        kernel = along_axis.put_rows
        places = plain(index[tuple(slice(None) if a == axis else 0 for a in range(x.ndim))])
    else:
        places = _cut(plain(index), axis)
    share(kernel, (values, places, target, outside, REDUCTIONS[reduce]), target.shape[0], 10 * index.size)
    return NotImplemented if outside[0] else out


def can_scatter(x: np.ndarray, index: np.ndarray, y: np.ndarray | float, axis: int) -> bool:
    """Whether ``scatter`` supports the call: ``y`` is a number, or float32 of the shape of ``index``."""
    if not isinstance(y, np.ndarray):
        return y.__class__ is float and covers_other_axes(x, index, axis)
    return covers_other_axes(x, index, axis) and y.shape == index.shape and fits(y)


#: The windows along an axis of size 1.
_SINGLE = np.array([[[0], [1], [1]]], INDEX)


def _largest(x: np.ndarray, windows: list[np.ndarray]) -> np.ndarray:
    """The index of the maximum of each window; ``windows`` are ``[planes or 1, (first, stop, step), count]``
    for each spatial axis."""
    counts = [w.shape[2] for w in windows]
    planes, missing = x.shape[0] * x.shape[1], 3 - len(windows)
    out = np.empty((*x.shape[:2], *counts), INDEX)
    volume = plain(x).reshape(planes, *(1,) * missing, *x.shape[2:])
    indices = out.reshape(planes, *(1,) * missing, *counts)
    bounds = [np.ascontiguousarray(w) for w in (*[_SINGLE] * missing, *windows)]
    share(resampling.largest, (volume, *bounds, indices), planes, 20 * x.size)
    return out


def _windows(first: np.ndarray, stop: np.ndarray, step: int) -> np.ndarray:
    """The windows along an axis as ``_largest`` takes them."""
    return np.stack([first, stop, np.full_like(first, step)], axis=-2).astype(INDEX)


def max_pool_indices(x: np.ndarray, **attrs: Attr) -> np.ndarray:
    """The indices of the maxima of sliding windows."""
    windows = []
    layout = (attrs[name] for name in ("kernel", "stride", "padding", "dilation"))
    counts = _max_pool_indices.infer(x, **attrs).shape[2:]
    for size, count, k, t, p, d in zip(x.shape[2:], counts, *layout, strict=True):
        first = np.arange(count) * t - p
        stop = np.minimum(first + (k - 1) * d + 1, size)
        windows.append(_windows(np.where(first < 0, first % d, first)[None], stop[None], d))
    return _largest(x, windows)


def adaptive_max_pool_indices(x: np.ndarray, *, sizes: Sequence[int]) -> np.ndarray:
    """The indices of the maxima of adaptive windows, whose number is ``sizes``."""
    _adaptive.infer(x, sizes=sizes)
    bounds = (adaptive_bounds(size, count) for size, count in zip(x.shape[2:], sizes, strict=True))
    return _largest(x, [_windows(first[None], stop[None], 1) for first, stop in bounds])


def fractional_max_pool_indices(
    x: np.ndarray, samples: np.ndarray, *, kernel: tuple[int, ...], sizes: tuple[int, ...]
) -> np.ndarray:
    """The indices of the maxima of windows at random steps."""
    _fractional.infer(x, samples, kernel=kernel, sizes=sizes)
    starts = fractional_starts(np, samples, x.shape[2:], kernel, sizes)
    return _largest(x, [_windows(s, s + k, 1) for s, k in zip(starts, kernel, strict=True)])


def scatter_prod(f: OpNamespace, x: np.ndarray, index: np.ndarray, y: np.ndarray, *, axis: int) -> np.ndarray:
    """``x`` with the elements at ``index`` multiplied by ``y``."""
    result: np.ndarray = f.scatter(x, index, y, axis=axis, reduce="multiply")
    return result


def scatter_extreme(
    f: OpNamespace, x: np.ndarray, index: np.ndarray, y: np.ndarray, *, axis: int, reduce: str,
    include_self: bool = True,
) -> np.ndarray:  # fmt: skip
    """``x`` with the maximum (``amax``) or minimum (``amin``) of itself and ``y`` at ``index``."""
    start = x if include_self else f.scatter(x, index, extreme_identity(x.dtype, reduce), axis=axis)
    result: np.ndarray = f.scatter(start, index, y, axis=axis, reduce=reduce)
    return result
