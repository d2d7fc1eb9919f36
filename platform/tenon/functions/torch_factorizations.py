"""Factorizations outside of ``torch.linalg``: ``lu``, ``geqrf``, ``ormqr``, ``lobpcg`` and low-rank ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon import ops
from tenon.compat.node_names import titled
from tenon.errors import ArgumentError, GradError, ShapeError, UnsupportedError
from tenon.functions import linalg
from tenon.functions.derived import write_into
from tenon.kernels.whole_arrays import beside
from tenon.tensors.creation.create import from_backend_array
from tenon.tensors.creation.random_factories import randn
from tenon.tensors.named_results import named_result

if TYPE_CHECKING:
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor

__all__ = ["geqrf", "lobpcg", "lu", "ormqr", "pca_lowrank", "svd_lowrank"]


def lu(
    A: Tensor, pivot: bool = True, get_infos: bool = False, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """Return ``(LU, pivots)`` as ``linalg.lu_factor``; with ``get_infos`` also the info of
    ``linalg.lu_factor_ex`` (torch.lu)."""
    factored = linalg.lu_factor_ex(A, pivot=pivot)
    result = tuple(factored) if get_infos else tuple(factored)[:2]
    return write_into(out, result)


def geqrf(input: Tensor, *, out: Sequence[Tensor] | None = None) -> NamedResult:
    """Return the named tuple ``(a, tau)`` of QR factorizations as LAPACK stores them: ``R`` with the
    reflections of ``Q`` below its diagonal, and their factors. GradError if ``input`` requires grad."""
    if input.raw.ndim < 2:
        raise ShapeError("torch.geqrf: input must have at least 2 dimensions.")
    if input.requires_grad:
        raise GradError("the derivative for geqrf is not implemented; linalg.qr has one.")
    host = input._backend.to_host(input.raw)
    packed, tau = np.linalg.qr(host, mode="raw")
    result = named_result(
        "geqrf",
        a=from_backend_array(input, np.swapaxes(packed, -1, -2).astype(host.dtype, copy=False)),
        tau=from_backend_array(input, tau.astype(host.dtype, copy=False)),
    )
    return write_into(out, result)


@titled("Ormqr0")
def ormqr(
    input: Tensor,
    tau: Tensor,
    other: Tensor,
    left: bool = True,
    transpose: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``Q @ other``, or ``other @ Q`` with ``left=False``, for the square ``Q`` of ``geqrf``.

    With ``transpose``, ``Q`` is replaced by its conjugate transpose.
    """
    if input.raw.ndim < 2 or other.raw.ndim != input.raw.ndim or tau.raw.ndim != input.raw.ndim - 1:
        raise ShapeError(
            "torch.ormqr: input and other must be matrices or batches of them, and tau have one dimension"
            f" less, got {list(input.raw.shape)}, {list(tau.raw.shape)} and {list(other.raw.shape)}"
        )
    rows, columns = input.raw.shape[-2:]
    count = tau.raw.shape[-1]
    if count > columns or other.raw.shape[-2 if left else -1] != rows:
        raise ShapeError(
            f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2] and tau hold at"
            f" most input.shape[-1] factors, got {list(input.raw.shape)}, {list(tau.raw.shape)} and"
            f" {list(other.raw.shape)}"
        )
    reflections = input.narrow(-1, 0, count)
    widths = ((0, 0),) * (input.raw.ndim - 1) + ((0, rows - count),)
    q = linalg.householder_product(ops.pad(reflections, widths=widths), ops.pad(tau, widths=widths[1:]))
    q = q.mH if transpose else q
    result = q @ other if left else other @ q
    return write_into(out, result)


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Return ``(U, S, V)`` of rank ``q`` with ``U @ diag(S) @ V.mH`` near ``A`` (minus ``M``).

    ``A`` is projected to a random subspace that ``niter`` power iterations rotate to the largest singular
    values (Halko, Martinsson and Tropp, 2009).
    """
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    matrix = A if M is None else A - M.broadcast_to(A.raw.shape)
    wide = matrix.raw.shape[-2] < matrix.raw.shape[-1]
    tall = matrix.mH if wide else matrix
    start = beside(tall, randn(tall.raw.shape[-1], q, dtype=tall.dtype, device=tall.device))
    basis = linalg.qr(tall @ start).Q
    for _ in range(niter):
        basis = linalg.qr(tall.mH @ basis).Q
        basis = linalg.qr(tall @ basis).Q
    u, s, vh = linalg.svd(basis.mH @ tall, full_matrices=False)
    u, v = basis @ u, vh.mH
    return (v, s, u) if wide else (u, s, v)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, ...]:
    """Return ``(U, S, V)``: the columns of ``V`` are the principal directions of the rows of ``A``.

    There are ``q`` of them, by default at most 6; with ``center``, the mean of the rows is subtracted first.
    """
    rows, columns = A.raw.shape[-2:]
    q = min(6, rows, columns) if q is None else q
    if not 0 <= q <= min(rows, columns):
        raise ArgumentError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(rows, columns)}"
        )
    if niter < 0:
        raise ArgumentError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, True) if center else A, q, niter)


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Callable[..., None] | None = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the ``k`` largest (or smallest) eigenvalues ``E`` of symmetric matrices ``A``, and their
    eigenvectors: ``A @ V = B @ V * E``, with ``B`` positive definite, or 1.

    LAPACK solves the dense problem directly, without iterations: the arguments that control PyTorch's
    iteration are accepted and ignored.

    >>> import tenon
    >>> values, vectors = tenon.lobpcg(tenon.diag(tenon.tensor([1.0, 5.0, 3.0])), k=1)
    >>> values
    tensor([5.])
    """
    if tracker is not None:
        raise UnsupportedError(
            "lobpcg: the solver does not iterate, so tracker would not be called; omit it."
        )
    size = A.raw.shape[-1]
    if A.raw.shape[-2] != size:
        raise AssertionError(f"A must be square, got shape {A.shape}")
    count = (1 if X is None else X.raw.shape[-1]) if k is None else k
    if size < 3 * count:
        raise ArgumentError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={size}) is smaller than 3 x the"
            f" number of requested eigenpairs (={count})"
        )
    matrix: Tensor = (A + A.mT) / 2
    root: Tensor | None = None
    if B is not None:
        root = linalg.cholesky((B + B.mT) / 2)
        half = linalg.solve_triangular(root, matrix, upper=False)
        matrix = linalg.solve_triangular(root, half.mT, upper=False)
    values, vectors = linalg.eigh(matrix)
    if largest is None or largest:
        values, vectors = values[..., size - count :].flip(-1), vectors[..., size - count :].flip(-1)
    else:
        values, vectors = values[..., :count], vectors[..., :count]
    return values, vectors if root is None else linalg.solve_triangular(root.mT, vectors, upper=True)
