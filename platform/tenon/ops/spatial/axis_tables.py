"""Resampling and padding of an axis as sparse matrices.

A ``Table`` is a sparse matrix by rows: output ``i`` is the sum of ``weights[k] * x[places[k]]`` for ``k``
from ``starts[i]`` to ``starts[i + 1]``; ``weights`` is None where each output is one input unchanged. A
*spec* identifies a table in hashable form:

- ``("nearest", size, align, scale)``, and likewise "nearest-exact", "linear", "cubic": interpolation to
``size``;
- ``("antialias-linear", ...)``, "antialias-cubic", "antialias-lanczos": filters that are as wide as the step;
- ``("reflect", before, after)``, "replicate", "circular": padding.

Places and weights are computed in the precision of the data, as PyTorch does: rounding decides which
neighbour is the nearest.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

#: A padding or an interpolation of one axis, as the module's docstring lists them.
Spec = tuple[Any, ...]
Real = type[np.float32] | type[np.float64]

_PADS = ("reflect", "replicate", "circular")
#: Half the width of each filter, and the slope of the cubic one.
_REACH = {"linear": 1.0, "cubic": 2.0, "lanczos": 3.0}
_CUBIC, _CUBIC_ANTIALIAS = -0.75, -0.5


class Table(NamedTuple):
    """A sparse matrix by rows."""

    starts: np.ndarray
    places: np.ndarray
    weights: np.ndarray | None


def pads(spec: Spec) -> bool:
    """Whether ``spec`` is a padding, which keeps all elements."""
    return spec[0] in _PADS


def length(spec: Spec, size: int) -> int:
    """Return the size of an axis of ``size`` after ``spec`` is applied."""
    return int(size + spec[1] + spec[2] if pads(spec) else spec[1])


@functools.lru_cache(maxsize=512)
def table_of(spec: Spec, size: int, wide: bool) -> Table:
    """Return the table of ``spec`` for an axis of ``size``; ``wide`` computes it in float64."""
    kind = spec[0]
    if kind in _PADS:
        return _single(_padded(kind, size, spec[1], spec[2]))
    _, count, align, scale = spec
    real: Real = np.float64 if wide else np.float32
    step = _step(size, count, align, scale, real)
    steps: np.ndarray = np.arange(count).astype(real)
    if kind in ("nearest", "nearest-exact"):
        source = np.floor((steps + real(0.5)) * step if kind == "nearest-exact" else steps * step)
        return _single(np.minimum(source.astype(np.int64), size - 1))
    if kind.startswith("antialias-"):
        return _filtered(kind.removeprefix("antialias-"), size, steps, step)
    source = steps * step if align else step * (steps + real(0.5)) - real(0.5)
    if kind == "cubic":
        low = np.floor(source)
        places = low.astype(np.int64)[:, None] + np.arange(-1, 3)
        weights = _cubic((source - low)[:, None] - np.arange(-1, 3).astype(real), real(_CUBIC))
        return _rows(np.clip(places, 0, size - 1), weights)
    source = np.maximum(source, 0)
    first = np.minimum(source.astype(np.int64), size - 1)
    upper = np.clip(source - first, 0, 1).astype(real)
    return _rows(np.stack([first, np.minimum(first + 1, size - 1)], 1), np.stack([real(1) - upper, upper], 1))


def _step(size: int, count: int, align: bool, scale: float | None, real: Real) -> np.floating:
    """Return the number of input elements per output element."""
    if align:
        return real((size - 1) / (count - 1)) if count > 1 else real(0)
    return real(1.0 / scale) if scale is not None and scale > 0 else real(size) / real(count)


def _padded(kind: str, size: int, before: int, after: int) -> np.ndarray:
    """Return the source index of each element of a padded axis."""
    index = np.arange(-before, size + after)
    if kind == "replicate":
        return np.clip(index, 0, size - 1)
    if kind == "circular":
        return index % max(size, 1)
    index = np.abs(index)
    return np.where(index >= size, 2 * (size - 1) - index, index)


def _cubic(x: np.ndarray, a: float | np.floating) -> np.ndarray:
    """Return Keys' piecewise cubic kernel at distance ``x``, with the slope parameter ``a``."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.asarray(np.where(x <= 1, near, np.where(x < 2, far, 0)), x.dtype)


def _weight(kind: str, x: np.ndarray) -> np.ndarray:
    """Return the filter ``kind`` at distance ``x``."""
    if kind == "cubic":
        return _cubic(x, x.dtype.type(_CUBIC_ANTIALIAS))
    if kind == "lanczos":
        return np.asarray(np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0), x.dtype)
    return np.asarray(np.maximum(1 - np.abs(x), 0))


def _filtered(kind: str, size: int, steps: np.ndarray, step: np.floating) -> Table:
    """Return the table of filters that widen with the step when downsampling; their weights sum to 1."""
    real = steps.dtype.type
    widened = max(step, real(1))
    reach = real(_REACH[kind]) * widened
    centre = step * (steps + real(0.5))
    first = np.maximum((centre - reach + real(0.5)).astype(np.int64), 0)
    last = np.minimum((centre + reach + real(0.5)).astype(np.int64), size)
    counts = np.maximum(last - first, 0)
    inside = np.arange(counts.max(initial=0)) < counts[:, None]
    places = first[:, None] + np.arange(inside.shape[1])
    distance = (places - centre[:, None] + real(0.5)) / widened
    weights = np.where(inside, _weight(kind, distance.astype(steps.dtype)), 0)
    total = weights.sum(1, keepdims=True)
    weights = np.divide(weights, total, out=weights, where=total != 0)
    return Table(np.concatenate(([0], np.cumsum(counts))), places[inside], weights[inside])


def _single(places: np.ndarray) -> Table:
    """Return the table of rows with one input each."""
    return Table(np.arange(places.size + 1), places, None)


def _rows(places: np.ndarray, weights: np.ndarray) -> Table:
    """Return the table of rows of equal length."""
    return Table(np.arange(len(places) + 1) * places.shape[1], places.reshape(-1), weights.reshape(-1))


@functools.lru_cache(maxsize=512)
def transposed(spec: Spec, size: int, wide: bool) -> Table:
    """Return the table of the gradient, whose rows are inputs and whose places are outputs."""
    starts, places, weights = table_of(spec, size, wide)
    rows = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    order = np.argsort(places, kind="stable")
    counts = np.bincount(places, minlength=size)
    row_starts = np.concatenate(([0], np.cumsum(counts)))
    return Table(row_starts, rows[order], None if weights is None else weights[order])


def reflected_limit(kind: str, size: int) -> float:
    """Return the maximum padding of ``kind`` on each side of an axis of ``size``."""
    return {"reflect": size - 1, "circular": size}.get(kind, math.inf)
