"""Ops along one axis of large float32 arrays by compiled kernels; everything else as the reference has it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.ops import solve_triangle as _solve_triangle
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, fits, indices_fit, plain, share
from tenon_cpu.jit.loops import lines

#: Elements of a run from which a compiled walk is faster than NumPy's.
_RUN = 32


def _lines(x: Any, axis: int) -> Any:
    """``x`` as ``[outer, size, inner]`` around ``axis``."""
    return plain(x).reshape(math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))


def runs(x: Any, axes: Any) -> bool:
    """Whether ``axes`` are the last ones, and long enough."""
    lead = x.ndim - len(axes)
    return bool(axes and sorted(axes) == list(range(lead, x.ndim)) and math.prod(x.shape[lead:]) >= _RUN)


def _runs(x: Any, axes: Any) -> Any:
    """``x`` as rows that are its last ``axes``."""
    return plain(x).reshape(-1, math.prod(x.shape[x.ndim - len(axes) :]))


def _shaped(made: Any, x: Any, axes: Any, keepdims: bool) -> Any:
    lead = x.shape[: x.ndim - len(axes)]
    return made.reshape((*lead, *(1,) * len(axes)) if keepdims else lead)


def cumsum(x: Any, *, axis: int) -> Any:
    """Along any axis."""
    given, out = _lines(x, axis), np.empty(x.shape, FLOAT)
    share(lines.cumsum, (given, out.reshape(given.shape)), given.shape[0], 10 * x.size)
    return out


def cumprod(x: Any, *, axis: int) -> Any:
    """Along any axis."""
    given, out = _lines(x, axis), np.empty(x.shape, FLOAT)
    share(lines.cumprod, (given, out.reshape(given.shape)), given.shape[0], 20 * x.size)
    return out


def amax(x: Any, *, axes: Any, keepdims: bool = False) -> Any:
    """Over the last axes."""
    rows = _runs(x, axes)
    return _shaped(_extreme(rows, 1), x, axes, keepdims)


def amin(x: Any, *, axes: Any, keepdims: bool = False) -> Any:
    """Over the last axes."""
    rows = _runs(x, axes)
    return _shaped(_extreme(rows, 0), x, axes, keepdims)


def _extreme(rows: Any, largest: int) -> Any:
    made = np.empty(rows.shape[0], FLOAT)
    share(lines.extreme, (rows, largest, made), made.size, rows.size)
    return made


def prod(x: Any, *, axes: Any, keepdims: bool = False) -> Any:
    """Over the last axes."""
    rows = _runs(x, axes)
    made = np.empty(rows.shape[0], FLOAT)
    share(lines.prod, (rows, made), made.size, rows.size)
    return _shaped(made, x, axes, keepdims)


def prod_of_others(x: Any, *, axes: Any) -> Any:
    """Over the last axes."""
    rows = _runs(x, axes)
    out = np.empty(x.shape, FLOAT)
    share(lines.prod_of_others, (rows, out.reshape(rows.shape)), rows.shape[0], 10 * x.size)
    return out


def vector_norm(x: Any, *, axes: Any = (), keepdims: bool = False) -> Any:
    """The root of the sum of squares over the last axes."""
    rows = _runs(x, axes)
    made = np.empty(rows.shape[0], FLOAT)
    share(lines.squares, (rows, made), made.size, rows.size)
    return _shaped(np.sqrt(made, out=made), x, axes, keepdims)


def _indexed(x: Any, indices: Any, layout: Any) -> Any:
    """The axis of the only index array, and that array as places that all exist; None where NumPy is to."""
    if len(indices) != 1 or not x.size or not indices_fit(indices[0]) or not fits(x):
        return None
    axis, flat = next(a for a, k in enumerate(layout) if not isinstance(k, slice)), indices[0].reshape(-1)
    size = x.shape[axis]
    if not flat.size:
        return None
    low, high = int(flat.min()), int(flat.max())
    if low < -size or high >= size:
        return None
    return axis, np.where(flat < 0, flat + size, flat) if low < 0 else flat


def take(x: Any, *indices: Any, layout: Any) -> Any:
    """At one index array on an axis that is not the first (there NumPy copies whole rows)."""
    found = _indexed(x, indices, layout)
    if found is None:
        return NotImplemented
    axis, places = found
    given, shape = _lines(x, axis), indices[0].shape
    out = np.empty((*x.shape[:axis], *shape, *x.shape[axis + 1 :]), FLOAT)
    made = out.reshape(given.shape[0], places.size, given.shape[2])
    share(lines.take, (given, places, made), made.shape[0], 10 * out.size)
    return out


def put(x: Any, y: Any, *indices: Any, layout: Any, out: Any = None) -> Any:
    """Adding at one index array."""
    found = _indexed(x, indices, layout)
    if found is None:
        return NotImplemented
    axis, places = found
    out = np.array(x, order="C") if out is None else out
    made = _lines(out, axis)
    shape = (*x.shape[:axis], *indices[0].shape, *x.shape[axis + 1 :])
    given = plain(y if y.shape == shape else np.broadcast_to(y, shape))
    arrays = (given.reshape(made.shape[0], places.size, made.shape[2]), places, made)
    share(lines.add_at, arrays, made.shape[0], 10 * given.size)
    return out


def argsort(x: Any, *, descending: bool = False, start: int = 0, stop: int) -> Any:
    """The first few of each row."""
    rows = plain(x).reshape(-1, x.shape[-1])
    out = np.empty((rows.shape[0], stop), INDEX)
    share(lines.first, (rows, -1 if descending else 0, out), out.shape[0], 20 * x.size)
    return out.reshape(*x.shape[:-1], stop)[..., start:].copy() if start else out.reshape(*x.shape[:-1], stop)


def solve_triangle(a: Any, b: Any, *, upper: bool) -> Any:
    """Batches of small triangles."""
    _solve_triangle.infer(a, b, upper=upper)
    size, count = b.shape[-2:]
    out = np.array(b, order="C")
    made = out.reshape(-1, size, count)
    share(
        lines.solve_triangle,
        (plain(a).reshape(-1, size, size), int(upper), made),
        len(made),
        2 * size * b.size,
    )
    return out


def _triangle(lower: int, x: Any, k: int) -> Any:
    out, shape = np.empty(x.shape, FLOAT), (-1, *x.shape[-2:])
    given = plain(x).reshape(shape)
    share(lines.triangle, (given, k, lower, out.reshape(shape)), len(given), x.size)
    return out


def tril(x: Any, *, k: int = 0) -> Any:
    """Row by row."""
    return _triangle(1, x, k)


def triu(x: Any, *, k: int = 0) -> Any:
    """Row by row."""
    return _triangle(0, x, k)
