"""torch.linalg: norms, factorizations and solvers over the last two axes.

Where a gradient is known it comes from the ops below (``inv``, ``solve``, ``det``, ``slogdet``, ``cholesky``,
``qr``, ``eigh``, ``svd``, norms, powers). The others raise GradError for a tensor that requires one, rather
than return a result without history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon import ops
from tenon.compat.node_names import titled
from tenon.compat.rerouting import register
from tenon.engine.grad_mode import MODE
from tenon.engine.operands import need_flags
from tenon.errors import ArgumentError, DTypeError, GradError, ShapeError
from tenon.functions.contraction import chained
from tenon.functions.derived import write_into
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
from tenon.functions.ldl_factorization import ldl_factor, ldl_factor_ex, ldl_solve
from tenon.functions.least_squares import lstsq, matrix_rank, pinv
from tenon.kernels.shapes import normalize_axis
from tenon.ops.matrices.linalg import LinearAlgebraError
from tenon.tensors.argument_checks import need_one_dtype
from tenon.tensors.creation.create import from_backend_array
from tenon.tensors.named_results import named_result
from tenon.tensors.precision import runs_in
from tenon.tensors.wrong_arguments import only_tensors

if TYPE_CHECKING:
    from tenon.dtypes import DTypeLike
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Axes

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh",
    "eigvals", "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex",
    "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot",
    "vector_norm",
]  # fmt: skip

LinAlgError = LinearAlgebraError


def _refuse_gradient(name: str, *tensors: Tensor, instead: str) -> None:
    """Raise GradError, with the advice ``instead``, if one of ``tensors`` requires grad."""
    if MODE.enabled and any(t.requires_grad for t in tensors):
        raise GradError(
            f"linalg.{name} has no gradient here, but an input requires one. {instead} Or call it on "
            "x.detach()."
        )


def _cast(A: Tensor, dtype: DTypeLike | None) -> Tensor:
    return A if dtype is None else A.to(dtype)


# --- norms ---


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the vector norm of order ``ord`` over the axes ``dim``, or over all elements if that is None."""
    need_flags("linalg_vector_norm", keepdim=keepdim)
    return write_into(out, _cast(x, dtype).norm(float(ord), dim, keepdim))


def _largest(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Return the largest of the magnitudes ``x`` along ``dim``; 0 if there are none."""
    return x.amax(dim, keepdim) if x.raw.shape[dim] else x.sum(dim, keepdim)


def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the norm of the matrices in the axes ``dim``.

    ``ord`` is "fro", "nuc", or ``±1``, ``±2``, ``±inf``: the largest (negative: smallest) sum of a column,
    singular value, sum of a row. ArgumentError for others.
    """
    need_flags("linalg_matrix_norm", keepdim=keepdim)
    x = _cast(A, dtype)
    if x.raw.ndim < 2:
        raise ShapeError(
            f"linalg.matrix_norm: The input tensor A must have at least 2 dimensions, got {x.raw.ndim}."
        )
    if len(dim) != 2:
        raise ArgumentError(
            f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(str(d) for d in dim)}. vector_norm"
            " takes any number of axes."
        )
    rows, columns = (normalize_axis(d, x.raw.ndim) for d in dim)
    if rows == columns:
        raise ArgumentError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    if ord == "fro":
        return write_into(out, x.norm(2, (rows, columns), keepdim))
    if ord in ("nuc", 2, -2):
        values = ops.svdvals(x.movedim((rows, columns), (-2, -1)))
        result = values.sum(-1) if ord == "nuc" else _largest(values, -1) if ord == 2 else values.amin(-1)
    elif not isinstance(ord, str) and ord in (1, -1, math.inf, -math.inf):
        summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = x.abs().sum(summed, True)
        norms = _largest(sums, other, True) if ord > 0 else sums.amin(other, True)
        return write_into(out, norms if keepdim else norms.squeeze((rows, columns)))
    else:
        raise ArgumentError(
            f"linalg.matrix_norm: Order {ord} not supported. Use 'fro', 'nuc', ±1, ±2 or ±inf."
        )
    if keepdim:
        for axis in sorted((rows, columns)):
            result = result.unsqueeze(axis)
    return write_into(out, result)


def norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return ``matrix_norm`` if ``ord`` is given and ``dim`` (by default all axes) has two axes, else
    ``vector_norm``."""
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


def cond(A: Tensor, p: float | str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return the condition number of each matrix: the largest singular value divided by the smallest, or with
    ``p`` ``norm(A, p) * norm(inv(A), p)``; 0 for matrices without elements."""
    if 0 in A.raw.shape[-2:] and not (isinstance(p, str) and A.raw.shape[-1] != A.raw.shape[-2]):
        return write_into(out, ops.svdvals(A).sum(-1).detach())
    if p in (None, 2, -2):
        values = ops.svdvals(A)
        high, low = values.amax(-1), values.amin(-1)
        return write_into(out, low / high if p == -2 else high / low)
    return write_into(out, matrix_norm(A, p) * matrix_norm(inv(A), p))


# --- factorizations, inverses and solvers ---


def qr(A: Tensor, mode: str = "reduced", *, out: Sequence[Tensor] | None = None) -> NamedResult:
    """Return the named tuple ``(Q, R)`` with ``A = Q @ R``: orthonormal columns and an upper triangle.

    ``mode`` is "reduced", "complete" (a square ``Q``) or "r" (``Q`` is empty), else ArgumentError.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced', 'r', or 'complete'"
        )
    if mode == "r":
        _refuse_gradient("qr(mode='r')", A, instead="Use mode='reduced'.")
    q, r = ops.qr(A, mode="reduced" if mode == "r" else mode)
    return write_into(out, named_result("linalg_qr", Q=A.new_empty(0) if mode == "r" else q, R=r))


def svd(A: Tensor, full_matrices: bool = True, *, out: Sequence[Tensor] | None = None) -> NamedResult:
    """Return the named tuple ``(U, S, Vh)`` with ``A = U @ diag(S) @ Vh``; ``S`` is in descending order.

    ``U`` and ``Vh`` are square with ``full_matrices``; else they have as many columns and rows as ``S``.
    """
    u, s, vh = ops.svd_parts(A, full=full_matrices)
    return write_into(out, named_result("linalg_svd", U=u, S=s, Vh=vh))


def svdvals(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the singular values of each matrix, in descending order."""
    return write_into(out, ops.svdvals(A))


def eigh(A: Tensor, UPLO: str = "L", *, out: Sequence[Tensor] | None = None) -> NamedResult:
    """Return the named tuple ``(eigenvalues, eigenvectors)`` of symmetric or Hermitian matrices.

    Eigenvalues are in ascending order, eigenvectors are columns. Only the lower triangle is read, or with
    ``UPLO="U"`` the upper.
    """
    values, vectors = ops.eigh(A, lower=UPLO.upper() == "L")
    return write_into(out, named_result("linalg_eigh", eigenvalues=values, eigenvectors=vectors))


def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor:
    """Return the eigenvalues of symmetric or Hermitian matrices, in ascending order; see ``eigh``."""
    return write_into(out, ops.eigh(A, lower=UPLO.upper() == "L")[0])


@titled("LinalgCholeskyEx0")
def cholesky(A: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """Return the lower triangular ``L`` with ``A = L @ L.mH`` of each matrix, or ``L.mH`` if ``upper``.

    LinearAlgebraError if a matrix is not positive definite.
    """
    return write_into(out, A.cholesky(upper))


def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse of each square matrix; LinearAlgebraError if one is singular."""
    return write_into(out, ops.inv(A))


def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the determinant of each square matrix."""
    return write_into(out, ops.det(A))


def slogdet(A: Tensor, *, out: Sequence[Tensor] | None = None) -> NamedResult:
    """Return the named tuple ``(sign, logabsdet)`` of the determinants; see ``Tensor.slogdet``."""
    sign, logabsdet = ops.slogdet(A)
    return write_into(out, named_result("linalg_slogdet", sign=sign, logabsdet=logabsdet))


@titled("LinalgSolveEx0")
def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """Return the solution ``X`` of ``A X = B``, or of ``X A = B`` with ``left=False``.

    ``B`` is a vector or matrix, or a batch of either. LinearAlgebraError if a matrix is singular.
    """
    vector = B.raw.ndim == 1 or (
        B.raw.ndim == A.raw.ndim - 1 and tuple(B.raw.shape) == tuple(A.raw.shape[:-1])
    )
    b = B.unsqueeze(-1) if vector else B
    if left:
        result = ops.solve(A, b)
    else:
        if vector:
            raise ShapeError(
                "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False."
            )
        result = ops.solve(A.mT, b.mT).mT
    return write_into(out, result.squeeze(-1) if vector else result)


def matrix_power(A: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return each square matrix to the power of the integer ``n``; see ``Tensor.matrix_power``."""
    return write_into(out, A.matrix_power(n))


def matrix_exp(A: Tensor) -> Tensor:
    """Return the exponential of each square matrix; see ``Tensor.matrix_exp``."""
    return A.matrix_exp()


@titled("View0")
def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Return the product of all matrices, multiplied in the order that needs the fewest operations.

    The first tensor may be a vector, which counts as a row, and the last one, which counts as a column.
    """
    if len(tensors) < 2:
        raise ArgumentError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    for index, t in enumerate(tensors):
        if t.raw.ndim != 2 and not (t.raw.ndim == 1 and index in (0, len(tensors) - 1)):
            raise ShapeError(f"multi_dot(): tensor {index} must be 2D but got {t.raw.ndim}D")
        if t.raw.dtype != tensors[0].raw.dtype:
            raise DTypeError(f"multi_dot(): expected all tensors of {tensors[0].dtype}, got {t.dtype}")
    return write_into(out, chained(tensors))


@titled("LinalgCholeskyEx0")
def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Sequence[Tensor] | None = None
) -> NamedResult:
    """Return the named tuple ``(L, info)``: as ``cholesky``, and for each matrix 0 or the order of the first
    leading minor that is not positive definite.

    The factor of such a matrix is NaN. LinearAlgebraError is raised with ``check_errors`` only.
    """
    try:
        result, info = A.cholesky(upper), np.zeros(A.raw.shape[:-2], np.int32)
    except LinearAlgebraError:
        if check_errors:
            raise
        info = _first_indefinite(A)
        indefinite = from_backend_array(A, info[..., None, None] > 0)
        unit = from_backend_array(A, np.eye(A.raw.shape[-1], dtype=A.raw.dtype))
        result = ops.where(indefinite, math.nan, ops.where(indefinite, unit, A).cholesky(upper))
    return write_into(out, named_result("linalg_cholesky_ex", L=result, info=from_backend_array(A, info)))


def _first_indefinite(A: Tensor) -> np.ndarray:
    """Return the order of the first leading minor of each matrix that is not positive definite, else 0.

    It is the first pivot of the factorization that is not positive. If rounding made all pivots positive but
    LAPACK rejects the matrix, it is the order of the matrix.
    """
    host = A._backend.to_host(A.raw)
    size = host.shape[-1]
    orders, factor = np.zeros(host.shape[:-2], np.int32), np.zeros_like(host)
    for k in range(size):
        row = factor[..., k, :k]
        pivot = host[..., k, k].real - np.sum(np.abs(row) ** 2, -1)
        orders[~(pivot > 0) & (orders == 0)] = k + 1
        root = np.sqrt(np.where(pivot > 0, pivot, 1))[..., None]
        factor[..., k, k] = root[..., 0]
        inner = factor[..., k + 1 :, :k] @ row.conj()[..., None]
        factor[..., k + 1 :, k] = (host[..., k + 1 :, k] - inner[..., 0]) / root
    for index in np.argwhere(orders == 0):
        try:
            np.linalg.cholesky(host[tuple(index)])
        except np.linalg.LinAlgError:
            orders[tuple(index)] = size
    return orders


# --- products ---


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the matrix product; see ``Tensor.matmul``."""
    return write_into(out, ops.matmul(input, other))


@runs_in("lower")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Return the sums of products along ``dim``, with the first operand conjugated; both are broadcast."""
    only_tensors(x, y)
    need_one_dtype("linalg.vecdot", x=x, y=y)
    return write_into(out, ops.mul(ops.conj(x), y).sum(dim))


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Return the cross product of vectors of three elements along ``dim``; both operands are broadcast."""
    if input.raw.ndim != other.raw.ndim:
        raise ShapeError("linalg.cross: inputs must have the same number of dimensions.")
    for x in (input, other):
        if x.raw.ndim and x.raw.shape[normalize_axis(dim, x.raw.ndim)] != 3:
            raise ShapeError(
                f"linalg.cross: inputs dimension {dim} must have length 3. Got {list(input.raw.shape)} and "
                f"{list(other.raw.shape)}"
            )
    return write_into(out, input.cross(other, dim))


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return a view of the diagonals of the matrices in the axes ``dim1`` and ``dim2``, as the last axis."""
    return A.diagonal(offset, dim1, dim2)


register("torch.linalg", {name: globals()[name] for name in __all__})
