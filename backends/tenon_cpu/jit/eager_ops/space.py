"""Ops over space of large float32 arrays by compiled kernels: resampling, grids, uneven windows, places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.ops import adaptive_max_pool_indices as _adaptive
from tenon.ops import fractional_max_pool_indices as _fractional
from tenon.ops import grid_places as _grid_places
from tenon.ops import max_pool_indices as _max_pool_indices
from tenon.ops.scatter_extreme import worst
from tenon.ops.spatial.axis_tables import Table
from tenon.ops.spatial.grid import OFFSETS, products
from tenon.ops.spatial.resampling import along, tables, walked
from tenon.ops.spatial.window_choice import adaptive_bounds, fractional_starts
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, WORTH, fits, plain, share
from tenon_cpu.jit.loops import grids, lines, resampling
from tenon_cpu.jit.loops.vectors import WAYS

_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


def _along(xp: Any, x: Any, table: Table, axis: int) -> Any:
    """``along`` by loops over rows, or over points where the axis is the last."""
    x = plain(x)
    starts, places, weights = table
    if not starts[-1] or not x.size:
        return along(xp, x, table, axis)
    given = np.ones(places.size, FLOAT) if weights is None else weights
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    out = np.empty((*x.shape[:axis], starts.size - 1, *x.shape[axis + 1 :]), FLOAT)
    inside = (inner,) if inner > 1 else ()
    made = out.reshape(outer, starts.size - 1, *inside)
    arrays = (x.reshape(outer, x.shape[axis], *inside), starts, places, given, made)
    share(resampling.rows if inner > 1 else resampling.points, arrays, outer, 10 * out.size)
    return out


def resample(x: Any, *, plan: Any) -> Any:
    """Axis by axis."""
    return walked(np, x, tables(x.shape, plan, FLOAT, turned=False), _along)


def resample_grad(g: Any, *, shape: Any, plan: Any) -> Any:
    """Axis by axis."""
    return walked(np, g, tables(shape, plan, FLOAT, turned=True), _along)


def _blocks(places: Any) -> int:
    return int(places.shape[0] * -(-places.shape[2] // resampling.BLOCK))


def tap_sum(x: Any, weights: Any, places: Any) -> Any:
    """Plane by plane."""
    out = np.empty((*x.shape[:2], places.shape[2]), FLOAT)
    arrays = (plain(x), plain(weights), places, out)
    share(resampling.tap_sum, arrays, _blocks(places), 10 * places.size * x.shape[1])
    return out


def tap_spread(g: Any, weights: Any, places: Any, *, cells: int) -> Any:
    """Plane by plane."""
    out = np.zeros((*g.shape[:2], cells), FLOAT)
    arrays = (plain(g), plain(weights), places, out)
    share(resampling.tap_spread, arrays, g.shape[0] * g.shape[1], 10 * places.size * g.shape[1])
    return out


def tap_dot(g: Any, x: Any, places: Any) -> Any:
    """Tap by tap."""
    out = np.empty(places.shape, FLOAT)
    arrays = (plain(g), plain(x), places, out)
    share(resampling.tap_dot, arrays, _blocks(places), 10 * places.size * x.shape[1])
    return out


class _Axis:
    """One axis of a sampling grid, split: the base elements, the fractions behind them and the slopes."""

    def __init__(self, grid: Any, axis: int, size: int, mode: str, padding: str, align: bool) -> None:
        self.size, self.padding = size, _PADDINGS[padding]
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        self.edges = tuple(np.float32(v) for v in (low, span, size - 1))
        self.scale = (size - 1) / 2 if align else size / 2
        shape, count = grid.shape[:2], grid.shape[0] * grid.shape[1]
        self.base, self.fraction, self.slope = (np.empty(shape, FLOAT) for _ in range(3))
        given = (np.float32(self.scale), np.float32(0.0 if align else 0.5), *self.edges)
        folds = 0 if mode == "cubic" else self.padding
        made = (self.base.reshape(-1), self.fraction.reshape(-1), self.slope.reshape(-1))
        points = grid.reshape(count, grid.shape[2])
        share(grids.split, (points, axis, *given, folds, int(mode == "nearest"), *made), count, 40 * count)

    def places(self, offset: int, before: Any, mode: str) -> Any:
        """Indices of the tap at ``offset``, behind those of the axes before."""
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


def _axes(grid: Any, sizes: Any, mode: str, padding: str, align: bool) -> list[_Axis]:
    grid, rank = plain(grid), len(sizes)
    return [_Axis(grid, rank - 1 - a, size, mode, padding, align) for a, size in enumerate(sizes)]


def grid_weights(f: Any, grid: Any, **attrs: Any) -> Any:
    """Axis by axis."""
    return products(f, [a.fraction for a in _axes(grid, **attrs)], attrs["mode"])


def grid_places(grid: Any, **attrs: Any) -> Any:
    """Axis by axis."""
    mode = attrs["mode"]
    out = np.empty(_grid_places.infer(grid, **attrs).shape, INDEX)
    found, axes = [np.zeros(grid.shape[:2], INDEX)], _axes(grid, **attrs)
    for axis in axes[:-1]:
        found = [axis.places(offset, before, mode) for before in found for offset in OFFSETS[mode]]
    for number, before in enumerate(found):
        for tap, offset in enumerate(OFFSETS[mode]):
            out[:, number * len(OFFSETS[mode]) + tap] = axes[-1].places(offset, before, mode)
    return out


def whole(x: Any, index: Any, axis: int) -> bool:
    """The index covers all of ``x`` but along ``axis``, and kernels serve."""
    if not x.ndim:
        return False
    around = x.shape[:axis] == index.shape[:axis] and x.shape[axis + 1 :] == index.shape[axis + 1 :]
    return max(x.size, index.size) >= WORTH and around and index.dtype is INDEX and fits(x)


def _cut(x: Any, axis: int) -> Any:
    """``x`` as rows where ``axis`` is the last, else as ``[outer, size, inner]``."""
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    return x.reshape(outer, x.shape[axis], *((inner,) if axis != x.ndim - 1 else ()))


def gather(x: Any, index: Any, *, axis: int) -> Any:
    """Of whole lines; the reference says which index is outside."""
    out, outside = np.empty(index.shape, FLOAT), np.zeros(1, np.uint8)
    arrays = (_cut(plain(x), axis), _cut(plain(index), axis), _cut(out, axis), outside)
    kernel = resampling.pick if axis == x.ndim - 1 else lines.pick
    share(kernel, arrays, arrays[0].shape[0], 10 * index.size)
    return NotImplemented if outside[0] else out


def scatter(x: Any, index: Any, y: Any, *, axis: int, reduce: str | None = None) -> Any:
    """Written to whole lines, or combined with them; the reference says which index is outside."""
    if y.__class__ is float:  # zeros, in the gradient of ``scatter``
        y = np.full(index.shape, y, FLOAT)
    out, outside = np.array(x, order="C"), np.zeros(1, np.uint8)
    given, made, kernel = _cut(plain(y), axis), _cut(out, axis), lines.place
    if made.ndim == 2:
        kernel, places = resampling.place, _cut(plain(index), axis)
    elif all(not step or a == axis for a, step in enumerate(index.strides)):  # the same for whole rows
        kernel, places = (
            lines.place_rows,
            plain(index[tuple(slice(None) if a == axis else 0 for a in range(x.ndim))]),
        )
    else:
        places = _cut(plain(index), axis)
    share(kernel, (given, places, made, outside, WAYS[reduce]), made.shape[0], 10 * index.size)
    return NotImplemented if outside[0] else out


def scatters(x: Any, index: Any, y: Any, axis: int) -> bool:
    """What is written covers the index, and is of float32 or a number."""
    return whole(x, index, axis) and (
        y.__class__ is float or (getattr(y, "shape", None) == index.shape and fits(y))
    )


_WHOLE = np.array([[[0], [1], [1]]], INDEX)


def _largest(x: Any, windows: list[Any]) -> Any:
    """``windows`` per spatial axis: ``[planes or 1, (first, stop, step), count]``."""
    counts = [w.shape[2] for w in windows]
    planes, missing = x.shape[0] * x.shape[1], 3 - len(windows)
    out = np.empty((*x.shape[:2], *counts), INDEX)
    volume = plain(x).reshape(planes, *(1,) * missing, *x.shape[2:])
    made = out.reshape(planes, *(1,) * missing, *counts)
    whole = [np.ascontiguousarray(w) for w in (*[_WHOLE] * missing, *windows)]
    share(resampling.largest, (volume, *whole, made), planes, 20 * x.size)
    return out


def _windows(first: Any, stop: Any, step: int) -> Any:
    return np.stack([first, stop, np.full_like(first, step)], axis=-2).astype(INDEX)


def max_pool_indices(x: Any, **attrs: Any) -> Any:
    """Window by window."""
    windows = []
    layout = (attrs[name] for name in ("kernel", "stride", "padding", "dilation"))
    counts = _max_pool_indices.infer(x, **attrs).shape[2:]
    for size, count, k, t, p, d in zip(x.shape[2:], counts, *layout, strict=True):
        first = np.arange(count) * t - p
        stop = np.minimum(first + (k - 1) * d + 1, size)
        windows.append(_windows(np.where(first < 0, first % d, first)[None], stop[None], d))
    return _largest(x, windows)


def adaptive_max_pool_indices(x: Any, *, sizes: Any) -> Any:
    """Window by window."""
    _adaptive.infer(x, sizes=sizes)
    bounds = (adaptive_bounds(size, count) for size, count in zip(x.shape[2:], sizes, strict=True))
    return _largest(x, [_windows(first[None], stop[None], 1) for first, stop in bounds])


def fractional_max_pool_indices(x: Any, samples: Any, *, kernel: Any, sizes: Any) -> Any:
    """Window by window."""
    _fractional.infer(x, samples, kernel=kernel, sizes=sizes)
    starts = fractional_starts(np, samples, x.shape[2:], kernel, sizes)
    return _largest(x, [_windows(s, s + k, 1) for s, k in zip(starts, kernel, strict=True)])


def scatter_prod(f: Any, x: Any, index: Any, y: Any, *, axis: int) -> Any:
    """Multiplied."""
    return f.scatter(x, index, y, axis=axis, reduce="multiply")


def scatter_extreme(
    f: Any, x: Any, index: Any, y: Any, *, axis: int, reduce: str, include_self: bool = True
) -> Any:
    """The largest or smallest."""
    start = x if include_self else f.scatter(x, index, worst(x.dtype, reduce), axis=axis)
    return f.scatter(start, index, y, axis=axis, reduce=reduce)
