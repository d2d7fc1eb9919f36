"""What singular values and eigenvalues decide: pseudo-inverses, ranks, least squares.

``tenon.linalg`` offers them. A value counts as 0 up to ``max(atol, rtol * largest)``; both bounds may be
tensors, one number a matrix.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import ops
from tenon.engine.grad_mode import MODE
from tenon.engine.precision import runs_in
from tenon.engine.value import Value
from tenon.errors import ArgumentError, ShapeError
from tenon.functions.derived import into
from tenon.kernels.backend import backend_named
from tenon.tensors.creation.create import from_backend_array
from tenon.tensors.methods.titles import titled
from tenon.tensors.results import named_result

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def _given(out: Any, made: Any) -> Any:
    return made if out is None else into(out, made)


def _need_matrices(name: str, A: Tensor) -> None:
    if A.raw.ndim < 2:
        raise ShapeError(f"linalg.{name}: expected a tensor with 2 or more dimensions, got {A.raw.ndim}.")


def _column(bound: Any) -> Any:
    """A bound beside the values of each matrix."""
    return bound.unsqueeze(-1) if isinstance(bound, Value) else bound  # type: ignore[attr-defined]


def _bounds(A: Tensor, atol: Tensor | float | None, rtol: Tensor | float | None) -> tuple[Any, Any]:
    """torch's defaults: ``rtol`` is the larger size times the dtype's epsilon, or 0 beside an ``atol``."""
    if rtol is None:
        rtol = max(A.raw.shape[-2:]) * float(np.finfo(A.raw.dtype).eps)
        if isinstance(atol, Value):
            rtol = ops.where(ops.gt(atol, 0), 0.0, rtol)
        elif atol:
            rtol = 0.0
    return (0.0 if atol is None else atol), rtol


def matrix_rank(
    A: Tensor,
    tol: float | None = None,
    hermitian: bool = False,
    *,
    atol: Tensor | float | None = None,
    rtol: float | None = None,
    out: Any = None,
) -> Tensor:
    """How many singular values exceed ``max(atol, rtol * largest)``; ``tol`` is ``atol`` without ``rtol``."""
    _need_matrices("matrix_rank", A)
    x = A.detach()
    sizes = ops.abs(ops.eigh(x, lower=True)[0]) if hermitian else ops.svdvals(x)
    if tol is not None:
        atol, rtol = tol, 0.0
    atol, rtol = _bounds(A, atol, rtol)
    if sizes.raw.shape[-1]:
        sizes = ops.gt(sizes, ops.maximum(ops.mul(sizes.amax(-1, True), _column(rtol)), _column(atol)))
    return _given(out, sizes.long().sum(-1))


def pinv(
    A: Tensor,
    rcond: float | None = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Tensor | float | None = None,
    out: Any = None,
) -> Tensor:
    """Pseudo-inverse by singular values (by eigenvalues with ``hermitian``); ``rcond`` is ``rtol``."""
    _need_matrices("pinv", A)
    rtol = rcond if rcond is not None else rtol
    atol, rtol = _bounds(A, atol, rtol)
    return _given(out, ops.pinv(A, rtol, atol, hermitian=bool(hermitian)))


@titled("LinalgLstsq0")
@runs_in("float32")
def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Any = None
) -> Any:
    """The ``X`` that minimises ``|A X - B|``, with residuals, rank and singular values.

    As in torch some are empty: residuals where the system is not overdetermined and of full rank, and with
    the driver gelsy (the default); the rank with gels; singular values with both.
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
    flat_a, flat_b = (h.reshape(math.prod(batch), *h.shape[len(batch) :]) for h in (host_a, host_b))
    systems = list(zip(flat_a, flat_b, strict=True)) or [(np.ones_like(flat_a.sum(0)), flat_b.sum(0))]
    solved, valued = backend_named("cpu").raw.least_squares, driver in ("gelsd", "gelss")
    found = [solved(a, b, rcond=rcond, values=valued) for a, b in systems]
    stacked = (np.stack([np.asarray(f[i]) for f in found])[: len(flat_a)] for i in range(3))
    parts = [from_backend_array(A, p.reshape((*batch, *p.shape[1:]))) for p in stacked]
    solution, rank, values = parts[0], parts[1].long(), parts[2]
    if MODE.enabled and (A.requires_grad or B.requires_grad):
        solution = ops.matmul(pinv(A), B)
    residuals = _residuals(A, B, solution, rank, driver)
    made = named_result(
        "linalg_lstsq",
        solution=solution,
        residuals=residuals,
        rank=rank.new_empty(0) if driver == "gels" else rank,
        singular_values=values if valued else values.new_empty(0),
    )
    return _given(out, made)


def _residuals(A: Tensor, B: Tensor, solution: Tensor, rank: Tensor, driver: str | None) -> Tensor:
    """Sums of squares of what is left over, where torch states them."""
    rows, columns = A.raw.shape[-2:]
    full = rows > columns and bool((rank == columns).all())
    if driver in (None, "gelsy") or not full:
        return ops.real(solution).reshape(-1)[:0]
    left = ops.sub(ops.matmul(A, solution), B).abs().square()
    return left.sum(-2) if B.raw.ndim == A.raw.ndim else left.sum(-1)
