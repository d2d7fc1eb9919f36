"""Interpolation, and padding by existing elements: each axis is multiplied by a small matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Kind and numbers of the resampling of one axis.
Spec = tuple[Any, ...]
#: ``np.float32`` or ``np.float64``, and a number of it.
Real = Any


def axis_step(size: int, count: int, align: bool, scale: float | None, real: Real) -> Real:
    """Return the number of input elements per output element."""
    if align:
        return real((size - 1) / (count - 1)) if count > 1 else real(0)
    return real(1.0 / scale) if scale is not None and scale > 0 else real(size) / real(count)


def cubic_weight(x: np.ndarray, a: Real) -> np.ndarray:
    """Return Keys' piecewise cubic kernel at distance ``x``."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0)).astype(x.dtype)


def filter_weight(kind: str, x: np.ndarray) -> np.ndarray:
    """Return the filter ``kind`` at distance ``x``."""
    if kind == "cubic":
        return cubic_weight(x, x.dtype.type(-0.5))
    if kind == "lanczos":
        return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0).astype(x.dtype)
    return np.maximum(1 - np.abs(x), 0)


def filtered_sources(kind: str, size: int, steps: np.ndarray, step: Real) -> tuple[np.ndarray, np.ndarray]:
    """Return the sources and weights of filters that are as wide as the step; weights sum to 1."""
    real = steps.dtype.type
    widened = max(step, real(1))
    reach = real({"linear": 1.0, "cubic": 2.0, "lanczos": 3.0}[kind]) * widened
    centre = step * (steps + real(0.5))
    first = np.maximum((centre - reach + real(0.5)).astype(np.int64), 0)
    last = np.minimum((centre + reach + real(0.5)).astype(np.int64), size)
    places = first[:, None] + np.arange((last - first).max(initial=0))
    distance = (places - centre[:, None] + real(0.5)) / widened
    weights = np.where(places < last[:, None], filter_weight(kind, distance.astype(steps.dtype)), 0)
    total = weights.sum(1, keepdims=True)
    return np.minimum(places, size - 1), np.divide(weights, total, out=weights, where=total != 0)


def axis_sources(spec: Spec, size: int, real: Real) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each output, its source elements and their weights."""
    kind = spec[0]
    if kind in ("reflect", "replicate", "circular"):
        index = np.arange(-spec[1], size + spec[2])
        if kind == "replicate":
            index = np.clip(index, 0, size - 1)
        elif kind == "circular":
            index = index % max(size, 1)
        else:
            index = np.abs(index)
            index = np.where(index >= size, 2 * (size - 1) - index, index)
        return index[:, None], np.ones((index.size, 1), real)
    _, count, align, scale = spec
    step, steps = axis_step(size, count, align, scale, real), np.arange(count).astype(real)
    if kind in ("nearest", "nearest-exact"):
        source = np.floor((steps + real(0.5)) * step if kind == "nearest-exact" else steps * step)
        return np.minimum(source.astype(np.int64), size - 1)[:, None], np.ones((count, 1), real)
    source = steps * step if align else step * (steps + real(0.5)) - real(0.5)
    if kind == "cubic":
        low = np.floor(source)
        places = low.astype(np.int64)[:, None] + np.arange(-1, 3)
        weights = cubic_weight((source - low)[:, None] - np.arange(-1, 3).astype(real), real(-0.75))
        return np.clip(places, 0, size - 1), weights
    if kind.startswith("antialias-"):
        return filtered_sources(kind.removeprefix("antialias-"), size, steps, step)
    source = np.maximum(source, 0)
    first = np.minimum(source.astype(np.int64), size - 1)
    upper = np.clip(source - first, 0, 1).astype(real)
    return np.stack([first, np.minimum(first + 1, size - 1)], 1), np.stack([real(1) - upper, upper], 1)


def resample(x: np.ndarray, plan: tuple[Spec | None, ...]) -> np.ndarray:
    """Return ``x`` with its last axes resampled or padded by the specs in ``plan``."""
    real: Real = np.float64 if x.dtype.itemsize == 8 else np.float32
    for axis, spec in enumerate(plan, x.ndim - len(plan)):
        if spec is None:
            continue
        places, weights = axis_sources(spec, x.shape[axis], real)
        if places.shape[1] == 1 and (weights == 1).all():
            x = np.take(x, places[:, 0], axis)
            continue
        spread = (-1, *(1,) * (x.ndim - axis - 1))
        parts = (
            np.take(x, places[:, i], axis) * weights[:, i].astype(x.dtype).reshape(spread)
            for i in range(places.shape[1])
        )
        x = np.add.reduce(list(parts))
    return x


def resample_grad(g: np.ndarray, shape: tuple[int, ...], plan: tuple[Spec | None, ...]) -> np.ndarray:
    """Return the transpose of ``resample`` to an input of ``shape``."""
    real: Real = np.float64 if g.dtype.itemsize == 8 else np.float32
    for axis, spec in enumerate(plan, g.ndim - len(plan)):
        if spec is None:
            continue
        places, weights = axis_sources(spec, shape[axis], real)
        matrix = np.zeros((shape[axis], len(places)), g.dtype)
        np.add.at(matrix, (places, np.arange(len(places))[:, None]), weights.astype(g.dtype))
        g = np.moveaxis(np.moveaxis(g, axis, -1) @ matrix.T, -1, axis)
    return g
