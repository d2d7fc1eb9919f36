"""Factorizations and solutions by routines of LAPACK that NumPy has no function for (``lapack.py``).

LAPACK is called for one matrix at a time, so batches of small matrices stay with NumPy, as does everything
where there is no OpenBLAS. Kernels return NotImplemented for cases that they leave to the reference.
"""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Kernel
from tenon.ops import cholesky as _cholesky
from tenon.ops import least_squares as _least_squares
from tenon.ops import lu_parts as _lu_parts
from tenon.ops import qr as _qr
from tenon.ops import solve as _solve
from tenon.ops import solve_triangle as _solve_triangle
from tenon.ops import svdvals as _svdvals
from tenon_cpu import lapack

#: Rows from which LAPACK's routines are faster, whose calls take some 20 us.
MIN_ROWS = 24


def _routines(*arrays: np.ndarray) -> lapack.Routines | None:
    """Return LAPACK's routines for the matrices; None if they are too small or there are none."""
    usable = all(a.ndim > 1 and a.size and a.__class__ is np.ndarray for a in arrays)
    return lapack.routines(*arrays) if usable and arrays[0].shape[-1] >= MIN_ROWS else None


def lu_parts(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The packed factors, pivots and permutation matrix of each matrix, and copies of them as residuals."""
    routines = _routines(x)
    if routines is None:
        return NotImplemented
    _lu_parts.infer(x)
    batch, (rows, columns) = x.shape[:-2], x.shape[-2:]
    count, size = math.prod(batch), min(rows, columns)
    packed = np.array(np.swapaxes(x, -1, -2), order="C").reshape(count, columns, rows)
    pivots = np.empty((count, size), np.int32)
    permutation = np.zeros((count, rows, rows), x.dtype)
    for k in range(count):
        pivots[k] = lapack.factor(routines, packed[k])[0]
        order = list(range(rows))
        for j, other in enumerate(pivots[k].tolist()):
            order[j], order[other - 1] = order[other - 1], order[j]
        permutation[k, order, np.arange(rows)] = 1
    results = (
        np.ascontiguousarray(np.swapaxes(packed, -1, -2)).reshape(x.shape),
        pivots.reshape((*batch, size)),
        permutation.reshape((*batch, rows, rows)),
    )
    return (*results, *(result.copy() for result in results))


def cholesky(x: np.ndarray) -> np.ndarray:
    """Return the Cholesky factor, computed in place, where NumPy transposes twice; decline where that fails,
    so that the reference raises the error."""
    routines = _routines(x)
    if routines is None:
        return NotImplemented
    _cholesky.infer(x)
    factors, size = np.array(x, order="C"), x.shape[-1]
    if any(lapack.triangle(routines, matrix) for matrix in factors.reshape(-1, size, size)):
        return NotImplemented
    return np.tril(factors)


def qr(x: np.ndarray, *, mode: str = "reduced") -> tuple[np.ndarray, ...]:
    """Return the QR factors, by blocked Householder reflections, and copies of them as residuals."""
    routines = _routines(x)
    if routines is None or min(x.shape[-2:]) < MIN_ROWS or not routines.has("geqrt"):
        return NotImplemented
    shapes = [aval.shape for aval in _qr.infer(x, mode=mode)]
    q, r = (np.empty(shape, x.dtype) for shape in shapes)
    columns = np.array(np.swapaxes(x, -1, -2), order="C").reshape(-1, x.shape[-1], x.shape[-2])
    pairs = zip(columns, q.reshape(-1, *q.shape[-2:]), r.reshape(-1, *r.shape[-2:]), strict=True)
    for matrix, for_q, for_r in pairs:
        for_q[...], for_r[...] = lapack.orthogonal(routines, matrix, q.shape[-1])
    return q, r, q.copy(), r.copy()


def solve(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """Solve with one matrix; return the solution, its factors and its pivots. Batches are left to NumPy."""
    routines = _routines(a, b) if a.ndim == 2 == b.ndim else None
    if routines is None:
        return NotImplemented
    _solve.infer(a, b)
    factors = np.array(a.T, order="C")
    pivots, singular = lapack.factor(routines, factors)
    if singular:
        return NotImplemented  # the reference raises the error
    solution = np.ascontiguousarray(lapack.solve_factored(routines, factors, pivots, b, turned=False).T)
    return solution, factors, pivots


def solve_adjoint(a: np.ndarray, b: np.ndarray, factors: np.ndarray, pivots: np.ndarray) -> np.ndarray:
    """Solve with the transposed matrix, by its factors; decline if there are none."""
    routines = lapack.routines(a, b, factors) if factors.size and b.size and b.ndim == 2 else None
    if routines is None:
        return NotImplemented
    return np.ascontiguousarray(lapack.solve_factored(routines, factors, pivots, b, turned=True).T)


def solve_triangle(a: np.ndarray, b: np.ndarray, *, upper: bool) -> np.ndarray:
    """Solve by blocked substitution; a 0 on the diagonal gives results that are not finite, as in torch."""
    routines = _routines(a, b) if a.shape[:-2] == b.shape[:-2] else None
    if routines is None:
        return NotImplemented
    _solve_triangle.infer(a, b, upper=upper)
    out = np.array(b, order="C")
    size, count = b.shape[-2:]
    matrices = a.reshape(-1, size, size)
    for matrix, x in zip(matrices, out.reshape(-1, size, count), strict=True):
        by_lines = matrix.itemsize in matrix.strides and max(matrix.strides) >= size * matrix.itemsize
        lapack.solve_triangle(routines, matrix if by_lines else matrix.copy(), x, upper=upper)
    return out


def least_squares(
    a: np.ndarray, b: np.ndarray, *, rcond: float | None = None, values: bool = True
) -> tuple[np.ndarray, ...]:
    """Solve by QR with column pivoting; decline if singular values are requested."""
    routines = lapack.routines(a, b) if not values and a.size and b.size else None
    if routines is None or a.ndim != 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return NotImplemented
    _least_squares.infer(a, b, rcond=rcond, values=values)
    bound = max(a.shape) * float(np.finfo(a.dtype).eps) if rcond is None else rcond
    solution, rank = lapack.least_squares(routines, a, b.reshape(b.shape[0], -1), bound)
    shape = (a.shape[1], *b.shape[1:])
    return np.ascontiguousarray(solution).reshape(shape), np.asarray(rank, np.int64), np.empty(0, a.dtype)


def svdvals(kernel: Kernel, x: np.ndarray) -> np.ndarray:
    """Compute singular values without vectors, which only a gradient reads."""
    return _svdvals.without_vectors(np, x)


#: Kernels for calls that need no residuals.
VISIBLE: dict[str, Kernel] = {"svdvals": svdvals}

__all__ = [
    "VISIBLE",
    "cholesky",
    "least_squares",
    "lu_parts",
    "qr",
    "solve",
    "solve_adjoint",
    "solve_triangle",
]
