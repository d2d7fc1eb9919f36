"""Factorizations ``L D L^H`` of symmetric and Hermitian indefinite matrices, by Bunch and Kaufman's pivoting.

``D`` has blocks of one or two rows. Factors and pivots are stored as LAPACK's ``sytrf`` stores the lower
triangle: a positive pivot is the number, from 1, of the row that was exchanged; two equal negative pivots
mark a block of two rows. ``tenon.linalg`` exports these functions; as in PyTorch none has a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenon.errors import DTypeError, ShapeError
from tenon.functions.derived import write_into
from tenon.ops.matrices.linalg import LinearAlgebraError
from tenon.tensors.creation.create import from_backend_array
from tenon.tensors.named_results import named_result

if TYPE_CHECKING:
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor

#: ``np.conj`` for Hermitian matrices, the identity for symmetric ones.
Conjugate: TypeAlias = Callable[..., Any]
_ALPHA = (1 + math.sqrt(17)) / 8


def _flat(x: Tensor, rank: int = 2) -> np.ndarray:
    """Copy ``x`` to the host with all batch axes joined into one."""
    host: np.ndarray = x._backend.to_host(x.raw)
    return host.reshape(math.prod(host.shape[: host.ndim - rank]), *host.shape[host.ndim - rank :])


def _magnitude(x: Any) -> Any:  # an array or NumPy number
    """LAPACK's cheap magnitude of complex numbers."""
    return np.abs(x.real) + np.abs(x.imag)


def _pivot(a: np.ndarray, k: int) -> tuple[int, int]:
    """Return the row to exchange with row ``k``, and the size of the block."""
    own, below = _magnitude(a[k, k]), _magnitude(a[k + 1 :, k])
    largest = below.max(initial=0)
    if own >= _ALPHA * largest:
        return k, 1
    row = k + 1 + int(below.argmax())
    beside = max(_magnitude(a[row, k:row]).max(), _magnitude(a[row + 1 :, row]).max(initial=0))
    if own >= _ALPHA * largest * (largest / beside):
        return k, 1
    return row, (1 if _magnitude(a[row, row]) >= _ALPHA * beside else 2)


def _exchange(a: np.ndarray, k: int, first: int, second: int, conj: Conjugate) -> None:
    """Exchange two rows and columns of the lower triangle from ``k`` on."""
    between = slice(first + 1, second)
    a[second + 1 :, [first, second]] = a[second + 1 :, [second, first]]
    a[between, first], a[second, between] = conj(a[second, between].copy()), conj(a[between, first].copy())
    a[second, first] = conj(a[second, first])
    a[[first, second], [first, second]] = a[[second, first], [second, first]]
    a[[first, second], k:first] = a[[second, first], k:first]


def _factor(a: np.ndarray, conj: Conjugate) -> tuple[np.ndarray, int]:
    """Factor the lower triangle of ``a`` in place; return the pivots, and 1 + the index of the first zero
    block, or 0."""
    size, k, info = len(a), 0, 0
    pivots = np.zeros(size, np.int32)
    while k < size:
        row, width = _pivot(a, k)
        singular = not _magnitude(a[k:, k]).any()
        if singular:
            info = info or k + 1
        if row != k + width - 1:
            _exchange(a, k, k + width - 1, row, conj)
        end = k + width
        if not singular:
            columns = a[end:, k:end].copy()
            factor = columns @ np.linalg.inv(_block(a, k, width, conj))
            a[end:, end:] -= np.tril(factor @ conj(columns).T)
            a[end:, k:end] = factor
        pivots[k:end] = row + 1 if width == 1 else -(row + 1)
        k = end
    return pivots, info


def _block(a: np.ndarray, k: int, width: int, conj: Conjugate) -> np.ndarray:
    """Return a block of ``D`` as a full matrix."""
    block = a[k : k + width, k : k + width].copy()
    if width == 2:
        block[0, 1] = conj(block[1, 0])
    return block


def ldl_factor_ex(
    A: Tensor, *, hermitian: bool = False, check_errors: bool = False, out: Sequence[Tensor] | None = None
) -> NamedResult:
    """Return the named tuple ``(LD, pivots, info)``: as ``ldl_factor``, and 1 + the index of the first zero
    block of ``D``, or 0. LinearAlgebraError for a zero block with ``check_errors`` only."""
    if A.raw.dtype.kind not in "fc" or A.raw.dtype.itemsize < 4:
        raise DTypeError(
            f"torch.linalg.ldl_factor_ex: Expected a floating point or complex tensor as input. Got {A.dtype}"
        )
    if A.raw.ndim < 2 or A.raw.shape[-1] != A.raw.shape[-2]:
        raise ShapeError(
            f"linalg.ldl_factor_ex: A must be batches of square matrices, got {list(A.raw.shape)}"
        )
    conj = np.conj if hermitian else np.asarray
    packed = np.tril(_flat(A))
    factored = [_factor(a, conj) for a in packed]
    batch, size = A.raw.shape[:-2], A.raw.shape[-1]
    pivots = np.array([p for p, _ in factored], np.int32).reshape(*batch, size)
    info = np.array([i for _, i in factored], np.int32).reshape(batch)
    if check_errors and info.any():
        raise LinearAlgebraError(f"linalg.ldl_factor: D[{info.max()}] is zero, the matrix is singular")
    parts = {"LD": packed.reshape(A.raw.shape), "pivots": pivots, "info": info}
    result = {name: from_backend_array(A, part) for name, part in parts.items()}
    return write_into(out, named_result("linalg_ldl_factor_ex", **result))


def ldl_factor(A: Tensor, *, hermitian: bool = False, out: Sequence[Tensor] | None = None) -> NamedResult:
    """Return the named tuple ``(LD, pivots)`` of ``A = L D L^T``, or ``L D L^H`` with ``hermitian``.

    ``LD`` has ``D`` on its diagonal and ``L`` below, as LAPACK stores them.
    """
    packed, pivots, _ = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return write_into(out, named_result("linalg_ldl_factor", LD=packed, pivots=pivots))


def ldl_solve(
    LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Tensor | None = None
) -> Tensor:
    """Return the solution ``X`` of ``A X = B``, where ``LD`` and ``pivots`` are ``ldl_factor(A)``."""
    if B.raw.dtype != LD.raw.dtype:
        raise DTypeError(f"linalg.ldl_solve: expected B of {LD.dtype}, as LD, but found {B.dtype}")
    if B.raw.ndim < 2 or B.raw.shape[-2] != LD.raw.shape[-1]:
        raise ShapeError(
            f"linalg.ldl_solve: Incompatible shapes of LD {list(LD.raw.shape)} and B {list(B.raw.shape)}"
        )
    batch = np.broadcast_shapes(LD.raw.shape[:-2], B.raw.shape[:-2])
    hosts = [x._backend.to_host(x.raw) for x in (LD, pivots, B)]
    factors = np.broadcast_to(hosts[0], (*batch, *hosts[0].shape[-2:])).reshape(-1, *hosts[0].shape[-2:])
    rows = np.broadcast_to(hosts[1], (*batch, hosts[1].shape[-1])).reshape(-1, hosts[1].shape[-1])
    shape = (*batch, *hosts[2].shape[-2:])
    result = np.array(np.broadcast_to(hosts[2], shape)).reshape(len(factors), *hosts[2].shape[-2:])
    conj = np.conj if hermitian else np.asarray
    for a, p, b in zip(factors, rows, result, strict=True):
        _solve(a, p, b, conj)
    return write_into(out, from_backend_array(B, result.reshape(shape)))


def _solve(a: np.ndarray, pivots: np.ndarray, b: np.ndarray, conj: Conjugate) -> None:
    """Overwrite ``b`` with the solution: forward through ``L`` and ``D``, backward through ``L^H``."""
    blocks, k = [], 0
    while k < len(a):
        width = 1 if pivots[k] > 0 else 2
        blocks.append((k, k + width, abs(int(pivots[k])) - 1))
        k += width
    for k, end, row in blocks:
        b[[end - 1, row]] = b[[row, end - 1]]
        b[end:] -= a[end:, k:end] @ b[k:end]
        b[k:end] = np.linalg.solve(_block(a, k, end - k, conj), b[k:end])
    for k, end, row in reversed(blocks):
        b[k:end] -= conj(a[end:, k:end]).T @ b[end:]
        b[[end - 1, row]] = b[[row, end - 1]]
