"""Ops along one axis of large float32 arrays by compiled kernels; everything else as the reference has it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import amax as _amax
from tenon.ops import amin as _amin
from tenon.ops import cumprod as _cumprod
from tenon.ops import cumsum as _cumsum
from tenon.ops import prod as _prod
from tenon.ops import put as _put
from tenon.ops import solve_triangle as _solve_triangle
from tenon.ops import take as _take
from tenon.ops import tril as _tril
from tenon.ops import triu as _triu
from tenon.ops import vector_norm as _vector_norm
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, WORTH, fits, indices_fit, plain, share
from tenon_cpu.jit.loops import lines
from tenon_cpu.kernels import factoring, ordering, products

#: Elements of a run from which a compiled walk is faster than NumPy's.
_RUN = 32
#: Elements of a row up to which they are found without sorting it.
_FEW = 32


def _lines(x: Any, axis: int) -> Any:
    """``x`` as ``[outer, size, inner]`` around ``axis``."""
    return plain(x).reshape(math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))


def _runs(x: Any, axes: Any) -> Any:
    """``x`` as rows that are its last ``axes``; None where they are not the last, or kernels do not serve."""
    lead = x.ndim - len(axes)
    if x.size < WORTH or not axes or sorted(axes) != list(range(lead, x.ndim)) or not fits(x):
        return None
    run = math.prod(x.shape[lead:])
    return plain(x).reshape(-1, run) if run >= _RUN else None


def _shaped(made: Any, x: Any, axes: Any, keepdims: bool) -> Any:
    lead = x.shape[: x.ndim - len(axes)]
    return made.reshape((*lead, *(1,) * len(axes)) if keepdims else lead)


def cumsum(x: Any, *, axis: int) -> Any:
    """Along any axis."""
    if x.size < WORTH or not fits(x):
        return _cumsum.forward(np, x, axis=axis)
    given, out = _lines(x, axis), np.empty(x.shape, FLOAT)
    share(lines.cumsum, (given, out.reshape(given.shape)), given.shape[0], 10 * x.size)
    return out


def cumprod(x: Any, *, axis: int) -> Any:
    """Along any axis."""
    if x.size < WORTH or not fits(x):
        return _cumprod.forward(np, x, axis=axis)
    given, out = _lines(x, axis), np.empty(x.shape, FLOAT)
    share(lines.cumprod, (given, out.reshape(given.shape)), given.shape[0], 20 * x.size)
    return out


def amax(x: Any, *, axes: Any, keepdims: bool = False, out: Any = None) -> Any:
    """Over the last axes."""
    rows = _runs(x, axes) if out is None else None
    if rows is None:
        return _amax.forward(np, x, axes=axes, keepdims=keepdims, out=out)
    return _shaped(_extreme(rows, 1), x, axes, keepdims)


def amin(x: Any, *, axes: Any, keepdims: bool = False, out: Any = None) -> Any:
    """Over the last axes."""
    rows = _runs(x, axes) if out is None else None
    if rows is None:
        return _amin.forward(np, x, axes=axes, keepdims=keepdims, out=out)
    return _shaped(_extreme(rows, 0), x, axes, keepdims)


def _extreme(rows: Any, largest: int) -> Any:
    made = np.empty(rows.shape[0], FLOAT)
    share(lines.extreme, (rows, largest, made), made.size, rows.size)
    return made


def prod(x: Any, *, axes: Any, keepdims: bool = False, out: Any = None) -> Any:
    """Over the last axes."""
    rows = _runs(x, axes) if out is None else None
    if rows is None:
        return _prod.forward(np, x, axes=axes, keepdims=keepdims, out=out)
    made = np.empty(rows.shape[0], FLOAT)
    share(lines.prod, (rows, made), made.size, rows.size)
    return _shaped(made, x, axes, keepdims)


def prod_of_others(f: Any, x: Any, *, axes: Any) -> Any:
    """Over the last axes."""
    rows = _runs(x, axes)
    if rows is None:
        return products.prod_of_others(f, x, axes=axes)
    out = np.empty(x.shape, FLOAT)
    share(lines.prod_of_others, (rows, out.reshape(rows.shape)), rows.shape[0], 10 * x.size)
    return out


def vector_norm(f: Any, x: Any, *, order: float = 2.0, axes: Any = (), keepdims: bool = False) -> Any:
    """The root of the sum of squares over the last axes."""
    rows = _runs(x, axes) if order == 2 else None
    if rows is None:
        return _vector_norm.decompose(f, x, order=order, axes=axes, keepdims=keepdims)
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
    found = _indexed(x, indices, layout) if x.size >= WORTH and isinstance(layout[0], slice) else None
    if found is None:
        return _take.forward(np, x, *indices, layout=layout)
    axis, places = found
    given, shape = _lines(x, axis), indices[0].shape
    out = np.empty((*x.shape[:axis], *shape, *x.shape[axis + 1 :]), FLOAT)
    made = out.reshape(given.shape[0], places.size, given.shape[2])
    share(lines.take, (given, places, made), made.shape[0], 10 * out.size)
    return out


def put(x: Any, y: Any, *indices: Any, layout: Any, accumulate: bool = False, out: Any = None) -> Any:
    """Adding at one index array."""
    ours = accumulate and getattr(y, "dtype", None) is FLOAT and x.size >= WORTH
    found = _indexed(x, indices, layout) if ours and (out is None or out.flags.carray) else None
    if found is None:
        return _put.forward(np, x, y, *indices, layout=layout, accumulate=accumulate, out=out)
    axis, places = found
    out = np.array(x, order="C") if out is None else out
    made = _lines(out, axis)
    shape = (*x.shape[:axis], *indices[0].shape, *x.shape[axis + 1 :])
    given = plain(y if y.shape == shape else np.broadcast_to(y, shape))
    arrays = (given.reshape(made.shape[0], places.size, made.shape[2]), places, made)
    share(lines.add_at, arrays, made.shape[0], 10 * given.size)
    return out


def argsort(x: Any, *, axis: int, descending: bool = False, start: int = 0, stop: int | None = None) -> Any:
    """The first few of each row; more of them, and along other axes, by NumPy."""
    if stop is None or not 0 < stop <= _FEW or axis != x.ndim - 1 or x.size < WORTH or not fits(x):
        return ordering.argsort(x, axis=axis, descending=descending, start=start, stop=stop)
    rows = plain(x).reshape(-1, x.shape[-1])
    out = np.empty((rows.shape[0], stop), INDEX)
    share(lines.first, (rows, -1 if descending else 0, out), out.shape[0], 20 * x.size)
    return out.reshape(*x.shape[:-1], stop)[..., start:].copy() if start else out.reshape(*x.shape[:-1], stop)


def solve_triangle(a: Any, b: Any, *, upper: bool) -> Any:
    """Batches of small triangles; large ones by LAPACK."""
    if (
        not 0 < b.shape[-2] < factoring.WORTH
        or b.size < WORTH
        or a.shape[:-2] != b.shape[:-2]
        or not fits(a, b)
    ):
        return factoring.solve_triangle(a, b, upper=upper)
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


def _triangle(op: Any, lower: int, x: Any, k: int) -> Any:
    if x.ndim < 2 or x.size < WORTH or not fits(x):
        return op.forward(np, x, k=k)
    out, shape = np.empty(x.shape, FLOAT), (-1, *x.shape[-2:])
    given = plain(x).reshape(shape)
    share(lines.triangle, (given, k, lower, out.reshape(shape)), len(given), x.size)
    return out


def tril(x: Any, *, k: int = 0) -> Any:
    """Row by row."""
    return _triangle(_tril, 1, x, k)


def triu(x: Any, *, k: int = 0) -> Any:
    """Row by row."""
    return _triangle(_triu, 0, x, k)


KERNELS: dict[str, Kernel] = {
    "argsort": argsort,
    "cumsum": cumsum,
    "cumprod": cumprod,
    "amax": amax,
    "amin": amin,
    "prod": prod,
    "take": take,
    "put": put,
    "solve_triangle": solve_triangle,
    "tril": tril,
    "triu": triu,
}
COMPOSITES: dict[str, Kernel] = {"prod_of_others": prod_of_others, "vector_norm": vector_norm}

__all__ = ["COMPOSITES", "KERNELS"]
