"""torch.linalg: norms, factorizations and solvers over the last two axes.

Where a gradient is known it comes from the ops below (``inv``, ``solve``, ``det``, ``slogdet``, ``cholesky``,
``qr``, ``eigh``, ``svd``, norms, powers). The others refuse a tensor that requires one, rather than
return a result without history.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon import ops
from tenon.core.create import from_backend_array
from tenon.core.grad_mode import MODE
from tenon.core.precision import runs_in
from tenon.core.results import named_result
from tenon.errors import ArgumentError, GradError, ShapeError
from tenon.functions.derived import into
from tenon.functions.factorizations import (
    eig,
    eigvals,
    householder_product,
    inv_ex,
    lu,
    lu_factor,
    lu_factor_ex,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
    vander,
)
from tenon.functions.factorizations import solve_factored as lu_solve
from tenon.ops.linalg import LinearAlgebraError

__all__ = [
    "LinAlgError", "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "householder_product", "inv", "inv_ex", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul",
    "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet",
    "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot",
    "vector_norm",
]  # fmt: skip

LinAlgError = LinearAlgebraError


def _refuse_gradient(name: str, *tensors: Any, instead: str) -> None:
    if MODE.enabled and any(t.requires_grad for t in tensors):
        raise GradError(
            f"linalg.{name} has no gradient here, but an input requires one. {instead} Or call it on "
            "x.detach()."
        )


def _given(out: Any, made: Any) -> Any:
    return made if out is None else into(out, made)


def _cast(A: Any, dtype: Any) -> Any:
    return A if dtype is None else A.to(dtype)


# --- norms ---


def vector_norm(
    x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Any:
    """Norm of order ``ord`` over ``dim`` (all elements if None)."""
    return _given(out, _cast(x, dtype).norm(float(ord), dim, keepdim))


def matrix_norm(
    A: Any,
    ord: Any = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """Norm of matrices: "fro", "nuc", or ``±1``, ``±2``, ``±inf`` (columns, singular values, rows)."""
    x = _cast(A, dtype)
    if x.raw.ndim < 2:
        raise ShapeError(
            f"linalg.matrix_norm: The input tensor A must have at least 2 dimensions, got {x.raw.ndim}."
        )
    rows, columns = (d % x.raw.ndim for d in dim)
    if ord == "fro":
        return _given(out, x.norm(2, (rows, columns), keepdim))
    if ord in ("nuc", 2, -2):
        values = ops.svdvals(x.movedim((rows, columns), (-2, -1)))
        made = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    elif ord in (1, -1, math.inf, -math.inf):
        summed, left = (rows, columns) if abs(ord) == 1 else (columns, rows)
        lines = x.abs().sum(summed, True)
        lines = lines.amax(left, True) if ord > 0 else lines.amin(left, True)
        return _given(out, lines if keepdim else lines.squeeze((rows, columns)))
    else:
        raise ArgumentError(
            f"linalg.matrix_norm: Order {ord} not supported. Use 'fro', 'nuc', ±1, ±2 or ±inf."
        )
    if keepdim:
        for axis in sorted((rows, columns)):
            made = made.unsqueeze(axis)
    return _given(out, made)


def norm(
    A: Any,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    out: Any = None,
    dtype: Any = None,
) -> Any:
    """Vector norm, or matrix norm where ``ord`` is given and there are two axes (or ``dim`` has two)."""
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype, out=out)
    if dim is None and A.raw.ndim > 2:
        raise ShapeError(
            f"linalg.norm: with ord given and no dim, the input must be 1-D or 2-D, got {A.raw.ndim}-D."
        )
    if (dim is None and A.raw.ndim == 2) or (isinstance(dim, (tuple, list)) and len(dim) == 2):
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):
        raise ShapeError(f"linalg.norm: ord={ord!r} needs matrices; give two axes in dim.")
    return vector_norm(A, ord, dim, keepdim, dtype=dtype, out=out)


def cond(A: Any, p: Any = None, *, out: Any = None) -> Any:
    """Condition number: the largest singular value over the smallest, or ``norm(A, p) * norm(inv(A), p)``."""
    if p in (None, 2, -2):
        values = ops.svdvals(A)
        high, low = values.amax(-1), values.amin(-1)
        return _given(out, low / high if p == -2 else high / low)
    return _given(out, matrix_norm(A, p) * matrix_norm(inv(A), p))


# --- factorizations and what follows from them ---


def qr(A: Any, mode: str = "reduced", *, out: Any = None) -> Any:
    """Orthonormal columns and upper triangles; ``mode`` is "reduced", "complete" or "r"."""
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced', 'r', or 'complete'"
        )
    if mode == "r":
        _refuse_gradient("qr(mode='r')", A, instead="Use mode='reduced'.")
    q, r = ops.qr(A, mode="reduced" if mode == "r" else mode)
    return _given(out, named_result("linalg_qr", Q=A.new_empty(0) if mode == "r" else q, R=r))


def svd(A: Any, full_matrices: bool = True, *, out: Any = None) -> Any:
    """``U, S, Vh`` with ``A = U @ diag(S) @ Vh``."""
    if A.raw.dtype.kind == "c":
        _refuse_gradient("svd", A, instead="Use linalg.svdvals where only the values matter.")
    u, s, vh = ops.svd_parts(A, full=full_matrices)
    return _given(out, named_result("linalg_svd", U=u, S=s, Vh=vh))


def svdvals(A: Any, *, out: Any = None) -> Any:
    """Singular values, largest first."""
    return _given(out, ops.svdvals(A))


def eigh(A: Any, UPLO: str = "L", *, out: Any = None) -> Any:
    """Eigenvalues in ascending order and eigenvectors of symmetric matrices; reads one triangle."""
    values, vectors = ops.eigh(A, lower=UPLO.upper() == "L")
    return _given(out, named_result("linalg_eigh", eigenvalues=values, eigenvectors=vectors))


def eigvalsh(A: Any, UPLO: str = "L", *, out: Any = None) -> Any:
    """Eigenvalues of symmetric matrices, in ascending order."""
    return _given(out, ops.eigh(A, lower=UPLO.upper() == "L")[0])


def cholesky(A: Any, *, upper: bool = False, out: Any = None) -> Any:
    """Lower (or upper) triangular factors of positive definite matrices."""
    return _given(out, A.cholesky(upper))


def inv(A: Any, *, out: Any = None) -> Any:
    """Inverse matrices."""
    return _given(out, ops.inv(A))


def det(A: Any, *, out: Any = None) -> Any:
    """Determinants."""
    return _given(out, ops.det(A))


def slogdet(A: Any, *, out: Any = None) -> Any:
    """Sign and logarithm of the magnitude of the determinants."""
    sign, logabsdet = ops.slogdet(A)
    return _given(out, named_result("linalg_slogdet", sign=sign, logabsdet=logabsdet))


def solve(A: Any, B: Any, *, left: bool = True, out: Any = None) -> Any:
    """``X`` of ``A X = B`` (``X A = B`` with ``left=False``); ``B`` is a matrix or a vector."""
    vector = B.raw.ndim == 1 or (
        B.raw.ndim == A.raw.ndim - 1 and tuple(B.raw.shape) == tuple(A.raw.shape[:-1])
    )
    b = B.unsqueeze(-1) if vector else B
    if left:
        made = ops.solve(A, b)
    else:
        if vector:
            raise ShapeError(
                "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False."
            )
        made = ops.solve(A.mT, b.mT).mT
    return _given(out, made.squeeze(-1) if vector else made)


def matrix_power(A: Any, n: int, *, out: Any = None) -> Any:
    """The matrix multiplied by itself ``n`` times; the inverse's power if negative."""
    return _given(out, A.matrix_power(n))


def matrix_exp(A: Any) -> Any:
    """Matrix exponential."""
    return A.matrix_exp()


def multi_dot(tensors: Sequence[Any], *, out: Any = None) -> Any:
    """The product of all matrices; the first and the last may be vectors."""
    return _given(out, functools.reduce(ops.matmul, tensors))


def pinv(A: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False, out: Any = None) -> Any:
    """Pseudo-inverse by singular values; those up to ``max(atol, rtol * largest)`` count as 0."""
    if A.raw.ndim < 2:
        raise ShapeError(f"linalg.pinv: expected a tensor with 2 or more dimensions, got {A.raw.ndim}.")
    if rtol is None:
        rtol = 0.0 if atol else max(A.raw.shape[-2:]) * float(np.finfo(A.raw.dtype).eps)
    return _given(out, ops.pinv(A, rtol=float(rtol), atol=float(atol or 0.0)))


def matrix_rank(
    A: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False, out: Any = None
) -> Any:
    """How many singular values exceed ``max(atol, rtol * largest)``."""
    values = ops.svdvals(A.detach())
    return _given(out, (values > _threshold(A, values, atol, rtol)).sum(-1))


def _threshold(A: Any, values: Any, atol: Any, rtol: Any) -> Any:
    if rtol is None:
        rtol = max(A.raw.shape[-2:]) * float(np.finfo(values.raw.dtype).eps) if not atol else 0.0
    return ops.maximum(values.amax(-1, True) * rtol, atol if atol is not None else 0.0)


@runs_in("float32")
def lstsq(A: Any, B: Any, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """The ``X`` that minimises ``|A X - B|``, with residuals, rank and singular values (LAPACK's gelsd).

    As in torch some are empty: residuals with the driver gelsy (the default), the rank with gels, singular
    values with both.
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ArgumentError(
            f"linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got {driver}"
        )
    host_a, host_b = (x._backend.to_host(x.raw) for x in (A, B))
    if host_a.ndim < 2 or host_b.shape[: host_a.ndim - 1] != host_a.shape[:-1]:
        raise ShapeError(
            f"linalg.lstsq: Incompatible shapes of A {list(host_a.shape)} and B {list(host_b.shape)}."
        )
    batch = host_a.shape[:-2]
    flat_a, flat_b = (h.reshape(-1, *h.shape[len(batch) :]) for h in (host_a, host_b))
    found = [np.linalg.lstsq(a, b, rcond) for a, b in zip(flat_a, flat_b, strict=True)]
    solution, residuals, rank, values = (_stacked(A, batch, [f[i] for f in found]) for i in range(4))
    if MODE.enabled and (A.requires_grad or B.requires_grad):
        solution = ops.matmul(pinv(A), B)
        if residuals.raw.size:
            residuals = (ops.matmul(A, solution) - B).square().sum(-2)
    if driver in (None, "gelsy"):
        residuals = residuals[:0].reshape(-1)[:0]
    if driver == "gels":
        rank = rank.new_empty(0)
    if driver not in ("gelsd", "gelss"):
        values = values.new_empty(0)
    return named_result(
        "linalg_lstsq", solution=solution, residuals=residuals, rank=rank, singular_values=values
    )


def _stacked(like: Any, batch: tuple[int, ...], parts: list[Any]) -> Any:
    stacked = np.stack([np.asarray(p) for p in parts])
    if stacked.dtype == np.int32:
        stacked = stacked.astype(np.int64)
    return from_backend_array(like, stacked.reshape((*batch, *stacked.shape[1:])))


# --- products ---


def matmul(input: Any, other: Any, *, out: Any = None) -> Any:
    """Matrix product."""
    return _given(out, ops.matmul(input, other))


@runs_in("lower")
def vecdot(x: Any, y: Any, *, dim: int = -1, out: Any = None) -> Any:
    """Sums of products along ``dim``, the first operand conjugated."""
    return _given(out, ops.mul(ops.conj(x), y).sum(dim))


def cross(input: Any, other: Any, *, dim: int = -1, out: Any = None) -> Any:
    """Vector product along ``dim``."""
    return _given(out, input.cross(other, dim))


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """The diagonal of the last two axes: a view."""
    return A.diagonal(offset, dim1, dim2)
