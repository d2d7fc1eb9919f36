"""LU factorizations, triangular solvers, eigenvalues and tensor equations.

``tenon.linalg`` exports them; ``lu_solve``, ``lu_unpack``, ``orgqr`` and ``triangular_solve`` are
functions of ``tenon``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon import ops
from tenon.compat.node_names import titled
from tenon.engine.aval import refuse_kinds
from tenon.errors import ArgumentError, ShapeError, UnsupportedError
from tenon.functions.contraction import powers
from tenon.functions.derived import write_into
from tenon.ops.matrices.linalg import LinearAlgebraError
from tenon.tensors.argument_checks import need_one_dtype
from tenon.tensors.creation.create import from_backend_array
from tenon.tensors.named_results import named_result

if TYPE_CHECKING:
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor

__all__ = ["lu_solve", "lu_unpack", "orgqr", "triangular_solve"]


def _check_pivot(name: str, pivot: bool) -> None:
    """Raise UnsupportedError for LU without pivoting."""
    if not pivot:
        raise UnsupportedError(
            f"linalg.{name}: LU without pivoting is not implemented on the CPU. Leave pivot=True."
        )


def _factors(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Split a packed factorization into ``L``, with ones on its diagonal, and ``U``."""
    rows, columns = packed.raw.shape[-2:]
    size = min(rows, columns)
    below = packed.narrow(-1, 0, size).tril(-1)
    unit = np.eye(rows, size, dtype=packed.raw.dtype)
    return below + from_backend_array(packed, unit), packed.narrow(-2, 0, size).triu()


@titled("LinalgLu0")
def lu(A: Tensor, *, pivot: bool = True, out: Sequence[Tensor] | None = None) -> NamedResult:
    """Return the named tuple ``(P, L, U)`` with ``A = P @ L @ U``: permutation, lower and upper triangle."""
    _check_pivot("lu", pivot)
    packed, _, p = ops.lu_parts(A)
    lower, upper = _factors(packed)
    return write_into(out, named_result("linalg_lu", P=p.detach(), L=lower, U=upper))


def lu_factor(A: Tensor, *, pivot: bool = True, out: Sequence[Tensor] | None = None) -> NamedResult:
    """Return the named tuple ``(LU, pivots)``: ``L`` and ``U`` in one matrix, and the rows exchanged in turn.

    UnsupportedError without ``pivot``.
    """
    _check_pivot("lu_factor", pivot)
    packed, pivots, _ = ops.lu_parts(A)
    return write_into(out, named_result("linalg_lu_factor", LU=packed, pivots=pivots))


def _first_zero(packed: Tensor) -> Tensor:
    """Return LAPACK's info: 1 + the index of the first zero on ``U``'s diagonal, 0 if there is none."""
    zeros = packed.detach().diagonal(0, -2, -1) == 0
    if not zeros.raw.size:
        return zeros.new_zeros(zeros.raw.shape[:-1]).int()
    first = zeros.long().argmax(-1) + 1
    return ops.where(zeros.any(-1), first, 0).int()


def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Sequence[Tensor] | None = None
) -> NamedResult:
    """Return the named tuple ``(LU, pivots, info)``: as ``lu_factor``, and 1 + the index of the first zero on
    the diagonal of ``U``, or 0. LinearAlgebraError for singular matrices with ``check_errors`` only."""
    packed, pivots = lu_factor(A, pivot=pivot)
    info = _first_zero(packed)
    if check_errors and bool((info > 0).any()):
        raise LinearAlgebraError(f"linalg.lu_factor: U[{info.max().item()}] is zero, the matrix is singular")
    return write_into(out, named_result("linalg_lu_factor_ex", LU=packed, pivots=pivots, info=info))


def _permutation(packed: Tensor, pivots: Tensor) -> Tensor:
    """Return the permutation matrices ``P`` of LAPACK's pivots."""
    rows = packed.raw.shape[-2]
    batch, size = pivots.raw.shape[:-1], pivots.raw.shape[-1]
    host = pivots._backend.to_host(pivots.raw).reshape(math.prod(batch), size)
    result = np.zeros((len(host), rows, rows), packed.raw.dtype)
    for matrix, exchanged in zip(result, host, strict=True):
        order = np.arange(rows)
        for j, other in enumerate(exchanged - 1):
            order[[j, other]] = order[[other, j]]
        matrix[order, np.arange(rows)] = 1
    return from_backend_array(packed, result.reshape((*pivots.raw.shape[:-1], rows, rows)))


def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> NamedResult:
    """Return the named tuple ``(P, L, U)`` for the results of ``lu_factor``; empty tensors for those that are
    not requested."""
    none = LU_data.new_empty(0)
    lower, upper = _factors(LU_data) if unpack_data else (none, none)
    p = _permutation(LU_data, LU_pivots) if unpack_pivots else none
    return write_into(out, named_result("lu_unpack", P=p, L=lower, U=upper))


def solve_factored(
    LU: Tensor,
    pivots: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the solution ``X`` of ``A X = B``, or of ``X A = B`` with ``left=False``.

    ``LU`` and ``pivots`` are ``lu_factor(A)``; ``adjoint`` solves for the conjugate transpose of ``A``.
    """
    (lower, upper), p = _factors(LU), _permutation(LU, pivots)
    reverse = adjoint == left  # whether U is solved for first
    b = B if left else B.mH
    if reverse:
        inner = ops.solve_triangle(upper.mH, b, upper=False)
        result = p @ ops.solve_triangle(lower.mH, inner, upper=True)
    else:
        inner = ops.solve_triangle(lower, p.mT @ b, upper=False)
        result = ops.solve_triangle(upper, inner, upper=True)
    return write_into(out, result if left else result.mH)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the solution of ``linalg.lu_solve(LU_data, LU_pivots, b)``: its older name (torch.lu_solve)."""
    return solve_factored(LU_data, LU_pivots, b, out=out)


@titled("LinalgSolveTriangular0")
def solve_triangular(
    A: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the solution ``X`` of ``A X = B`` (``X A = B`` with ``left=False``) for triangular ``A``.

    Only the upper triangle is read if ``upper``, else the lower; with ``unitriangular`` not the diagonal
    either, which counts as ones. ``X`` has the dtype of ``A``, or of ``B`` if that alone is complex.
    ShapeError unless ``A`` is square.
    """
    if A.raw.ndim < 2 or A.raw.shape[-1] != A.raw.shape[-2]:
        raise ShapeError(
            f"linalg.solve_triangular: A must be batches of square matrices, got {list(A.raw.shape)}"
        )
    if A.raw.dtype != B.raw.dtype:
        wider = B.is_complex() and not A.is_complex()
        A, B = (A.to(B.dtype), B) if wider else (A, B.to(A.dtype))
    inner = 1 if unitriangular else 0
    triangle = A.triu(inner) if upper else A.tril(-inner)
    if unitriangular:
        triangle = triangle + from_backend_array(A, np.eye(A.raw.shape[-1], dtype=A.raw.dtype))
    if left:
        return write_into(out, ops.solve_triangle(triangle, B, upper=upper))
    return write_into(out, ops.solve_triangle(triangle.mT, B.mT, upper=not upper).mT)


@titled("TriangularSolve0")
def triangular_solve(
    b: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> NamedResult:
    """Return the named tuple ``(solution, cloned_coefficient)``; see ``Tensor.triangular_solve``."""
    need_one_dtype("triangular_solve", b=b, A=A)
    matrix, is_upper = (A.mT, not upper) if transpose else (A, upper)
    solution = solve_triangular(matrix, b, upper=is_upper, unitriangular=unitriangular)
    result = named_result("triangular_solve", solution=solution, cloned_coefficient=A.clone())
    return write_into(out, result)


def inv_ex(A: Tensor, *, check_errors: bool = False, out: Sequence[Tensor] | None = None) -> NamedResult:
    """Return the named tuple ``(inverse, info)``: the inverses, NaN for singular matrices, and for each
    matrix 0 or the position of its first zero pivot. LinearAlgebraError with ``check_errors`` only."""
    info = _first_zero(ops.lu_parts(A.detach())[0])
    singular = info > 0
    if bool(singular.any()):
        if check_errors:
            ops.inv(A.detach())  # whose error names the matrix
            raise LinearAlgebraError("linalg.inv_ex: the input matrix is singular")
        unit = from_backend_array(A, np.eye(A.raw.shape[-1], dtype=A.raw.dtype))
        where = singular.unsqueeze(-1).unsqueeze(-1)
        result = ops.where(where, math.nan, ops.inv(ops.where(where, unit, A)))
    else:
        result = ops.inv(A)
    return write_into(out, named_result("linalg_inv_ex", inverse=result, info=info))


@titled("LinalgSolveEx0")
def solve_ex(
    A: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    check_errors: bool = False,
    out: Sequence[Tensor] | None = None,
) -> NamedResult:
    """Return the named tuple ``(result, info)``: the ``X`` of ``A X = B`` (``X A = B`` with ``left=False``),
    and for each matrix 0 or the position of its first zero pivot."""
    inverse, info = inv_ex(A, check_errors=check_errors)
    vector = B.raw.ndim == 1 or tuple(B.raw.shape) == tuple(A.raw.shape[:-1])
    if bool((info > 0).any()):
        result = inverse @ B if left else B @ inverse
    elif left:
        result = ops.solve(A, B.unsqueeze(-1)).squeeze(-1) if vector else ops.solve(A, B)
    else:
        result = ops.solve(A.mT, B.mT).mT
    return write_into(out, named_result("linalg_solve_ex", result=result, info=info))


def eig(A: Tensor, *, out: Sequence[Tensor] | None = None) -> NamedResult:
    """Return the named tuple ``(eigenvalues, eigenvectors)`` of square matrices; both are complex, and
    eigenvectors are columns."""
    values, vectors = ops.eig(A)
    return write_into(out, named_result("linalg_eig", eigenvalues=values, eigenvectors=vectors))


def eigvals(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the eigenvalues of square matrices, as complex numbers."""
    return write_into(out, ops.eig(A)[0])


@titled("LinalgHouseholderProduct0")
def householder_product(A: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the first columns of the product of Householder reflections ``1 - tau v v^H``.

    The vectors ``v`` are below the diagonal of ``A``, as ``geqrf`` returns them.
    """
    if A.raw.ndim < 2:
        raise ShapeError("linalg.householder_product: input must have at least 2 dimensions.")
    refuse_kinds("linalg.householder_product", "biu", A.raw, tau.raw)
    need_one_dtype("linalg.householder_product", tau=tau, input=A)
    rows, columns = A.raw.shape[-2:]
    if rows < columns or tau.raw.shape[-1] > columns:
        raise ShapeError(
            f"linalg.householder_product: needs rows >= columns >= reflections, got {list(A.raw.shape)} and "
            f"{list(tau.raw.shape)}"
        )
    batch = tuple(A.raw.shape[:-2])
    unit = from_backend_array(A, np.eye(rows, columns, dtype=A.raw.dtype))
    result, ones = unit.expand((*batch, rows, columns)), unit[:, :columns]
    for i in reversed(range(tau.raw.shape[-1])):
        v = (A.narrow(-1, i, 1).tril(-i - 1) if i + 1 < rows else A.narrow(-1, i, 1) * 0) + ones[:, i : i + 1]
        factor = tau.narrow(-1, i, 1).unsqueeze(-1)
        result = result - factor * (v @ (v.mH @ result))
    return write_into(out, result)


orgqr = householder_product


@titled("Cat0")
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Return the powers 0 to ``N - 1`` of every element, along a new last axis (torch.linalg.vander)."""
    count = N if N is not None else x.raw.shape[-1] if x.raw.ndim else 1
    if count <= 1:
        raise ArgumentError(f"N must be greater than 1, got {count}.")
    base = x if x.raw.dtype.kind in "fcV" else x.long()
    base = base.reshape(1) if not base.raw.ndim else base
    return ops.stack(*powers(base, count), axis=base.raw.ndim)


def tensorinv(A: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse of ``A``, read as a matrix whose rows are the first ``ind`` axes
    (torch.linalg.tensorinv)."""
    if ind <= 0:
        raise ArgumentError(f"Expected a strictly positive integer for 'ind', got {ind}")
    head, tail = tuple(A.raw.shape[:ind]), tuple(A.raw.shape[ind:])
    if math.prod(head) != math.prod(tail):
        raise ShapeError(
            f"Expected self to satisfy prod(shape[:ind]) = prod(shape[ind:]), got {head}, {tail}"
        )
    return write_into(out, ops.inv(A.reshape(math.prod(head), math.prod(tail))).reshape(*tail, *head))


def tensorsolve(
    A: Tensor, B: Tensor, dims: Sequence[int] | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Return the ``X`` for which ``tensordot(A, X, X.ndim)`` is ``B``; ``dims`` of ``A`` are moved to its end
    first (torch.linalg.tensorsolve)."""
    a = A if dims is None else A.movedim(tuple(dims), tuple(range(A.raw.ndim - len(dims), A.raw.ndim)))
    shape = tuple(a.raw.shape[B.raw.ndim :])
    size = math.prod(shape)
    if size != B.raw.size:
        raise ShapeError(
            f"linalg.tensorsolve: {list(a.raw.shape)} is not a square system for {list(B.raw.shape)}"
        )
    return write_into(out, ops.solve(a.reshape(size, size), B.reshape(size, 1)).reshape(shape))
