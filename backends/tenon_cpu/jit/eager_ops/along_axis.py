"""Ops along axes of large float32 arrays: cumulative, reductions, indexing, sorting, by compiled kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tenon.ops import solve_triangle as _solve_triangle
from tenon_cpu.jit.compiler.compile import Kernel as Compiled
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, fits, indices_fit, plain, share
from tenon_cpu.jit.loops import along_axis

#: Elements of a run from which a compiled loop is faster than NumPy's.
_RUN = 32


def _lines(x: np.ndarray, axis: int) -> np.ndarray:
    """``x`` as ``[outer, size, inner]``, the size that of ``axis``."""
    return plain(x).reshape(math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))


def runs(x: np.ndarray, axes: Sequence[int]) -> bool:
    """Whether ``axes`` are the last ones of ``x``, and long enough for a compiled loop."""
    lead = x.ndim - len(axes)
    return bool(axes and sorted(axes) == list(range(lead, x.ndim)) and math.prod(x.shape[lead:]) >= _RUN)


def _runs(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """``x`` as a matrix whose rows are its last ``axes``."""
    return plain(x).reshape(-1, math.prod(x.shape[x.ndim - len(axes) :]))


def _reduced(
    kernel: Compiled, x: np.ndarray, axes: Sequence[int], keepdims: bool, *numbers: int
) -> np.ndarray:
    """The result of a kernel that reduces ``x`` over its last ``axes``."""
    rows, lead = _runs(x, axes), x.shape[: x.ndim - len(axes)]
    out = np.empty(rows.shape[0], FLOAT)
    share(kernel, (rows, *numbers, out), out.size, rows.size)
    return out.reshape((*lead, *(1,) * len(axes)) if keepdims else lead)


def _cumulative(kernel: Compiled, x: np.ndarray, axis: int, cost: int) -> np.ndarray:
    """The result of a cumulative kernel, at ``cost`` tenths of ns an element."""
    ins, out = _lines(x, axis), np.empty(x.shape, FLOAT)
    share(kernel, (ins, out.reshape(ins.shape)), ins.shape[0], cost * x.size)
    return out


def cumsum(x: np.ndarray, *, axis: int) -> np.ndarray:
    """The cumulative sum along an axis."""
    return _cumulative(along_axis.cumsum, x, axis, 10)


def cumprod(x: np.ndarray, *, axis: int) -> np.ndarray:
    """The cumulative product along an axis."""
    return _cumulative(along_axis.cumprod, x, axis, 20)


def amax(x: np.ndarray, *, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
    """The maximum over the last axes."""
    return _reduced(along_axis.extreme, x, axes, keepdims, 1)


def amin(x: np.ndarray, *, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
    """The minimum over the last axes."""
    return _reduced(along_axis.extreme, x, axes, keepdims, 0)


def prod(x: np.ndarray, *, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
    """The product over the last axes."""
    return _reduced(along_axis.prod, x, axes, keepdims)


def prod_of_others(x: np.ndarray, *, axes: Sequence[int]) -> np.ndarray:
    """For each element, the product of all others over the last axes."""
    rows = _runs(x, axes)
    out = np.empty(x.shape, FLOAT)
    share(along_axis.prod_of_others, (rows, out.reshape(rows.shape)), rows.shape[0], 10 * x.size)
    return out


def vector_norm(x: np.ndarray, *, axes: Sequence[int] = (), keepdims: bool = False) -> np.ndarray:
    """The root of the sum of squares over the last axes."""
    squares = _reduced(along_axis.squares, x, axes, keepdims)
    return np.sqrt(squares, out=squares)


def _indexed(
    x: np.ndarray, indices: Sequence[np.ndarray], layout: Sequence[object]
) -> tuple[int, np.ndarray] | None:
    """The axis of the only index array, and its indices, flat and not negative; None if NumPy is to index."""
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


def take(x: np.ndarray, *indices: np.ndarray, layout: Sequence[object]) -> np.ndarray:
    """Elements at one index array, on an axis other than the first, where NumPy copies whole rows."""
    indexed = _indexed(x, indices, layout)
    if indexed is None:
        return NotImplemented
    axis, flat = indexed
    ins, shape = _lines(x, axis), indices[0].shape
    out = np.empty((*x.shape[:axis], *shape, *x.shape[axis + 1 :]), FLOAT)
    taken = out.reshape(ins.shape[0], flat.size, ins.shape[2])
    share(along_axis.take, (ins, flat, taken), taken.shape[0], 10 * out.size)
    return out


def put(
    x: np.ndarray, y: np.ndarray, *indices: np.ndarray, layout: Sequence[object],
    out: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """``x`` with ``y`` added at one index array; ``out``, where it is written, holds ``x``."""
    indexed = _indexed(x, indices, layout)
    if indexed is None:
        return NotImplemented
    axis, flat = indexed
    out = np.array(x, order="C") if out is None else out
    target = _lines(out, axis)
    shape = (*x.shape[:axis], *indices[0].shape, *x.shape[axis + 1 :])
    added = plain(y if y.shape == shape else np.broadcast_to(y, shape))
    arrays = (added.reshape(target.shape[0], flat.size, target.shape[2]), flat, target)
    share(along_axis.add_at, arrays, target.shape[0], 10 * added.size)
    return out


def argsort(x: np.ndarray, *, descending: bool = False, start: int = 0, stop: int) -> np.ndarray:
    """The indices ``start`` to ``stop`` of the order of each row."""
    rows = plain(x).reshape(-1, x.shape[-1])
    out = np.empty((rows.shape[0], stop), INDEX)
    share(along_axis.smallest, (rows, -1 if descending else 0, out), out.shape[0], 20 * x.size)
    return out.reshape(*x.shape[:-1], stop)[..., start:].copy() if start else out.reshape(*x.shape[:-1], stop)


def solve_triangle(a: np.ndarray, b: np.ndarray, *, upper: bool) -> np.ndarray:
    """Solve batches of small triangular systems."""
    _solve_triangle.infer(a, b, upper=upper)
    size, count = b.shape[-2:]
    out = np.array(b, order="C")
    matrices, systems = plain(a).reshape(-1, size, size), out.reshape(-1, size, count)
    share(along_axis.solve_triangle, (matrices, int(upper), systems), len(systems), 2 * size * b.size)
    return out


def _triangle(lower: int, x: np.ndarray, k: int) -> np.ndarray:
    out, shape = np.empty(x.shape, FLOAT), (-1, *x.shape[-2:])
    matrices = plain(x).reshape(shape)
    share(along_axis.triangle, (matrices, k, lower, out.reshape(shape)), len(matrices), x.size)
    return out


def tril(x: np.ndarray, *, k: int = 0) -> np.ndarray:
    """The lower triangles of matrices, up to diagonal ``k``."""
    return _triangle(1, x, k)


def triu(x: np.ndarray, *, k: int = 0) -> np.ndarray:
    """The upper triangles of matrices, from diagonal ``k`` on."""
    return _triangle(0, x, k)
