"""Samples of spatial ops: resampling, patches, adaptive windows, sampling at indices."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tenon.ops.spatial.resampling import Plan
from tenon.testing.samples.draw import integer, normal, uniform
from tenon.testing.samples.table import add

#: NumPy's names of kinds of padding.
_MODES: dict[str, Literal["reflect", "edge", "wrap"]] = {
    "reflect": "reflect", "replicate": "edge", "circular": "wrap",
}  # fmt: skip


def _resampled(x: np.ndarray, plan: Plan) -> np.ndarray:
    """Compute nearest-neighbour and linear interpolation and padding of one axis, element by element."""
    kind, *rest = plan[-1]
    size = x.shape[-1]
    if kind in ("reflect", "replicate", "circular"):
        before, after = rest
        return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(before, after)], mode=_MODES[kind])
    count, align, _ = rest
    if kind == "nearest":
        return x[..., [i * size // count for i in range(count)]]
    coordinates = [
        i * (size - 1) / (count - 1) if align else max((i + 0.5) * size / count - 0.5, 0)
        for i in range(count)
    ]
    return np.stack([_interpolated(x, u) for u in coordinates], axis=-1).astype(x.dtype)


def _interpolated(x: np.ndarray, u: float) -> np.ndarray:
    """Interpolate linearly at the coordinate ``u`` of the last axis."""
    low = min(int(u), x.shape[-1] - 1)
    high = min(low + 1, x.shape[-1] - 1)
    return x[..., low] * (1 - (u - low)) + x[..., high] * (u - low)


for _name, _plan in {
    "nearest": (None, ("nearest", 7, False, None)),
    "fewer": (("nearest", 2, False, None),),
    "linear": (("linear", 7, False, None),),
    "aligned": (("linear", 3, True, None),),
    "reflect": (("reflect", 2, 4),),
    "replicate": (None, ("replicate", 6, 1)),
    "circular": (("circular", 5, 2),),
}.items():
    add("resample", _name, normal(2, 3, 5), reference=_resampled, attrs={"plan": _plan}, loose=8.0)
for _name, _plan in {
    "cubic": (("cubic", 3, False, None), ("cubic", 6, True, None)),
    "filtered": (("antialias-linear", 2, False, 0.45), ("antialias-cubic", 3, False, None)),
    "exact": (("nearest-exact", 6, False, 1.7), None),
    "scaled": (("linear", 7, False, 1.9), ("linear", 2, False, 0.5)),
}.items():
    add("resample", _name, normal(2, 4, 5), attrs={"plan": _plan})
add(
    "resample",
    "strided",
    normal(2, 5).in_layout("strided"),
    attrs={"plan": (("linear", 8, False, None),)},
    tags="strided",
)
add("resample", "empty", normal(0, 5), attrs={"plan": (("linear", 8, False, None),)}, tags="empty")
add(
    "resample",
    "large",
    normal(4, 40, 60),
    attrs={"plan": (("linear", 81, False, None), ("cubic", 50, False, None))},
    tags="large",
)
for _name, _plan, _shape in (
    ("linear", (("linear", 7, False, None),), (2, 3, 7)),
    ("filtered", (("antialias-linear", 2, False, None),), (2, 3, 2)),
    ("reflect", (("reflect", 2, 1),), (2, 3, 8)),
):
    add("resample_grad", _name, normal(*_shape), attrs={"shape": (2, 3, 5), "plan": _plan})

_PATCH = {"kernel": (2, 3), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}


def _columns(
    x: np.ndarray,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> np.ndarray:
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    counts = [
        (s - d * (k - 1) - 1) // t + 1
        for s, k, t, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    result = np.zeros((*x.shape[:2], *kernel, *counts), x.dtype)
    for i, j in np.ndindex(*kernel):
        for r, c in np.ndindex(*counts):
            row, column = r * stride[0] + i * dilation[0], c * stride[1] + j * dilation[1]
            result[:, :, i, j, r, c] = x[:, :, row, column]
    return result.reshape(x.shape[0], -1, counts[0] * counts[1])


add("unfold", "patches", normal(2, 3, 5, 7), reference=_columns, attrs=_PATCH)
add("fold", "patches", normal(2, 18, 9), attrs={"sizes": (5, 7), **_PATCH})
add("fold", "empty", normal(0, 18, 9), attrs={"sizes": (5, 7), **_PATCH}, tags="empty")


def _adaptive_indices(x: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    result = np.zeros((*x.shape[:2], *sizes), np.int64)
    rows, columns = x.shape[2:]
    for i, j in np.ndindex(*sizes):
        top, left = i * rows // sizes[0], j * columns // sizes[1]
        part = x[:, :, top : -(-(i + 1) * rows // sizes[0]), left : -(-(j + 1) * columns // sizes[1])]
        row, column = np.divmod(part.reshape(*x.shape[:2], -1).argmax(-1), part.shape[3])
        result[:, :, i, j] = (top + row) * columns + left + column
    return result


add(
    "adaptive_max_pool_indices",
    "uneven",
    normal(2, 3, 7, 5),
    reference=_adaptive_indices,
    attrs={"sizes": (3, 4)},
    narrow=False,
)
add("adaptive_max_pool_indices", "line", normal(2, 3, 7), attrs={"sizes": (9,)})
add("adaptive_max_pool_indices", "empty", normal(0, 3, 7, 5), attrs={"sizes": (3, 4)}, tags="empty")
add(
    "fractional_max_pool_indices",
    "image",
    normal(2, 3, 7, 8),
    uniform(0.0, 1.0, 2, 3, 2),
    attrs={"kernel": (2, 3), "sizes": (4, 3)},
)
add(
    "fractional_max_pool_indices",
    "one",
    normal(2, 3, 7, 8),
    uniform(0.0, 1.0, 2, 3, 2),
    attrs={"kernel": (7, 2), "sizes": (1, 7)},
)


def _tap_sum(x: np.ndarray, weights: np.ndarray, places: np.ndarray) -> np.ndarray:
    result = np.zeros((*x.shape[:2], places.shape[2]), x.dtype)
    for n, t, p in np.ndindex(*places.shape):
        if places[n, t, p] >= 0:
            result[n, :, p] += weights[n, t, p] * x[n, :, places[n, t, p]]
    return result


def _tap_spread(g: np.ndarray, weights: np.ndarray, places: np.ndarray, cells: int) -> np.ndarray:
    result = np.zeros((*g.shape[:2], cells), g.dtype)
    for n, t, p in np.ndindex(*places.shape):
        if places[n, t, p] >= 0:
            result[n, :, places[n, t, p]] += weights[n, t, p] * g[n, :, p]
    return result


def _tap_dot(g: np.ndarray, x: np.ndarray, places: np.ndarray) -> np.ndarray:
    result = np.zeros(places.shape, g.dtype)
    for n, t, p in np.ndindex(*places.shape):
        if places[n, t, p] >= 0:
            result[n, t, p] = (g[n, :, p] * x[n, :, places[n, t, p]]).sum()
    return result


_PLACES = integer(-1, 7, 2, 4, 5)
add("tap_sum", "some", normal(2, 3, 7), normal(2, 4, 5), _PLACES, reference=_tap_sum, loose=8.0, narrow=False)
add(
    "tap_sum",
    "empty",
    normal(2, 3, 7),
    normal(2, 4, 0),
    integer(-1, 7, 2, 4, 0),
    reference=_tap_sum,
    tags="empty",
)
add(
    "tap_spread",
    "some",
    normal(2, 3, 5),
    normal(2, 4, 5),
    _PLACES,
    reference=_tap_spread,
    attrs={"cells": 7},
    loose=8.0,
    narrow=False,
)
add("tap_dot", "some", normal(2, 3, 5), normal(2, 3, 7), _PLACES, reference=_tap_dot, loose=8.0, narrow=False)
for _name, _sizes, _align in (("plane", (3, 2), True), ("volume", (2, 1, 3), False)):
    _rank = len(_sizes)
    add("affine_grid", _name, normal(2, _rank, _rank + 1), attrs={"sizes": _sizes, "align": _align})
    _points = normal(2, int(np.prod(_sizes)), _rank)
    add("affine_grid_grad", _name, _points, attrs={"sizes": _sizes, "align": _align})
for _name, _sizes, _mode, _padding, _align in (
    ("linear", (5, 6), "linear", "zeros", False),
    ("border", (5, 6), "linear", "border", True),
    ("reflection", (5, 6), "linear", "reflection", False),
    ("aligned", (5, 1), "linear", "reflection", True),
    ("cubic", (4, 3), "cubic", "reflection", True),
    ("nearest", (5, 6), "nearest", "border", False),
    ("volume", (2, 3, 4), "linear", "zeros", True),
):
    _attrs = {"sizes": _sizes, "mode": _mode, "padding": _padding, "align": _align}
    _taps = {"linear": 2, "nearest": 1, "cubic": 4}[_mode] ** len(_sizes)
    _grid = uniform(-1.3, 1.3, 2, 5, len(_sizes))
    add("grid_weights", _name, _grid, attrs=_attrs)
    add("grid_weights_grad", _name, normal(2, _taps, 5), _grid, attrs=_attrs)
    add("grid_places", _name, _grid, attrs=_attrs)
