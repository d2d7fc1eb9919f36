"""Pseudo-inverses, ranks and least squares, by singular values and eigenvalues.

``tenon.linalg`` exports them. Values up to ``max(atol, rtol * largest)`` count as 0; both bounds may be
tensors with one number for every matrix.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tenon import ops
from tenon.compat.node_names import titled
from tenon.engine.grad_mode import MODE
from tenon.engine.value import Value
from tenon.errors import ArgumentError, ShapeError
from tenon.functions.derived import write_into
from tenon.kernels.backend import backend_named
from tenon.tensors.argument_checks import need_one_dtype
from tenon.tensors.creation.create import from_backend_array
from tenon.tensors.named_results import named_result
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor


def _need_matrices(name: str, A: Tensor) -> None:
    if A.raw.ndim < 2:
        raise ShapeError(f"linalg.{name}: expected a tensor with 2 or more dimensions, got {A.raw.ndim}.")


def _column(bound: Tensor | float) -> Tensor | float:
    """Add an axis to a tensor of bounds, so that it broadcasts over the values of each matrix."""
    return bound.unsqueeze(-1) if isinstance(bound, Value) else bound


def _bounds(
    A: Tensor, atol: Tensor | float | None, rtol: Tensor | float | None
) -> tuple[Tensor | float, Tensor | float]:
    """Return both bounds, by default PyTorch's: ``rtol`` is the larger size times the dtype's epsilon, or 0
    if ``atol`` is given."""
    if rtol is None:
        rtol = max(A.raw.shape[-2:]) * float(np.finfo(A.raw.dtype).eps)
        if isinstance(atol, Value):
            rtol = ops.where(ops.gt(atol, 0), 0.0, rtol)
        elif atol:
            rtol = 0.0
    return (0.0 if atol is None else atol), rtol


def matrix_rank(
    A: Tensor,
    tol: Tensor | float | None = None,
    hermitian: bool = False,
    *,
    atol: Tensor | float | None = None,
    rtol: Tensor | float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the rank of each matrix: the number of singular values above ``max(atol, rtol * largest)``.

    ``tol`` is ``atol`` with ``rtol`` 0. With ``hermitian``, magnitudes of eigenvalues are counted.
    """
    _need_matrices("matrix_rank", A)
    x = A.detach()
    sizes = ops.abs(ops.eigh(x, lower=True)[0]) if hermitian else ops.svdvals(x)
    if tol is not None:
        atol, rtol = tol, 0.0
    atol, rtol = _bounds(A, atol, rtol)
    if sizes.raw.shape[-1]:
        sizes = ops.gt(sizes, ops.maximum(ops.mul(sizes.amax(-1, True), _column(rtol)), _column(atol)))
    return write_into(out, sizes.long().sum(-1))


def pinv(
    A: Tensor,
    rcond: Tensor | float | None = None,
    hermitian: bool = False,
    *,
    atol: Tensor | float | None = None,
    rtol: Tensor | float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the pseudo-inverse of each matrix, from singular values, or eigenvalues with ``hermitian``.

    Values up to ``max(atol, rtol * largest)`` count as 0; ``rcond`` is an older name of ``rtol``.
    """
    _need_matrices("pinv", A)
    rtol = rcond if rcond is not None else rtol
    atol, rtol = _bounds(A, atol, rtol)
    return write_into(out, ops.pinv(A, rtol, atol, hermitian=bool(hermitian)))


@titled("LinalgLstsq0")
@runs_in("float32")
def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Tensor | None = None
) -> NamedResult:
    """Return the named tuple ``(solution, residuals, rank, singular_values)``: the ``X`` of least
    ``|A X - B|``.

    As in PyTorch some are empty: residuals where the system is not overdetermined and of full rank, and with
    the driver gelsy (the default); the rank with gels; singular values with both.
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ArgumentError(
            f"linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got {driver}"
        )
    need_one_dtype("linalg.lstsq", input=A, other=B)
    host_a, host_b = (x._backend.to_host(x.raw) for x in (A, B))
    if host_a.ndim < 2 or host_b.shape[: host_a.ndim - 1] != host_a.shape[:-1]:
        raise ShapeError(
            f"linalg.lstsq: Incompatible shapes of A {list(host_a.shape)} and B {list(host_b.shape)}."
        )
    batch = host_a.shape[:-2]
    flat_a, flat_b = (h.reshape(math.prod(batch), *h.shape[len(batch) :]) for h in (host_a, host_b))
    systems = list(zip(flat_a, flat_b, strict=True)) or [(np.ones_like(flat_a.sum(0)), flat_b.sum(0))]
    solve, with_values = backend_named("cpu").raw.least_squares, driver in ("gelsd", "gelss")
    solutions = [solve(a, b, rcond=rcond, values=with_values) for a, b in systems]
    stacked = (np.stack([np.asarray(s[i]) for s in solutions])[: len(flat_a)] for i in range(3))
    parts = [from_backend_array(A, p.reshape((*batch, *p.shape[1:]))) for p in stacked]
    solution, rank, values = parts[0], parts[1].long(), parts[2]
    if MODE.enabled and (A.requires_grad or B.requires_grad):
        solution = ops.matmul(pinv(A), B)
    residuals = _residuals(A, B, solution, rank, driver)
    result = named_result(
        "linalg_lstsq",
        solution=solution,
        residuals=residuals,
        rank=rank.new_empty(0) if driver == "gels" else rank,
        singular_values=values if with_values else values.new_empty(0),
    )
    return write_into(out, result)


def _residuals(A: Tensor, B: Tensor, solution: Tensor, rank: Tensor, driver: str | None) -> Tensor:
    """Sums of squares of ``A @ solution - B`` where PyTorch returns them, else an empty tensor."""
    rows, columns = A.raw.shape[-2:]
    full = rows > columns and bool((rank == columns).all())
    if driver in (None, "gelsy") or not full:
        return ops.real(solution).reshape(-1)[:0]
    squares = ops.sub(ops.matmul(A, solution), B).abs().square()
    return squares.sum(-2) if B.raw.ndim == A.raw.ndim else squares.sum(-1)
