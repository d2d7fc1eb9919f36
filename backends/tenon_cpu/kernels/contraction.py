"""Affine maps and matrix products, divided among the threads of ``tenon_cpu.threads``.

Large products are split here and not by BLAS: after a product, BLAS's second thread spins for some 20 ms on
the core that the second thread of the next kernel needs.
"""

from __future__ import annotations

import math

import numpy as np

from tenon_cpu.threads import alone, split

#: Multiplications from which a second thread is worthwhile: some 20 us of work for each.
SHARED = 1 << 21
#: Multiplications from which BLAS would start threads of its own.
LARGE = 1 << 16
_dot = np.dot


def product(x: np.ndarray, y: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """``x[M, K] @ y[K, N] + bias[N]``; the longer axis of the result is split among threads."""
    rows, columns = x.shape[0], y.shape[1]
    size = rows * columns * x.shape[1]
    if size < SHARED:
        out = _dot(x, y) if size < LARGE else alone(_dot, x, y)
        return out if bias is None else np.add(out, bias, out=out)
    out = np.empty((rows, columns), x.dtype)

    def by_rows(a: int, b: int) -> None:
        part = np.matmul(x[a:b], y, out=out[a:b])
        if bias is not None:
            np.add(part, bias, out=part)

    def by_columns(a: int, b: int) -> None:
        part = np.matmul(x, y[:, a:b], out=out[:, a:b])
        if bias is not None:
            np.add(part, bias[a:b], out=part)

    if rows >= columns:
        split(by_rows, rows, 8)
    else:
        split(by_columns, columns, 8)
    return out


def matrices(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the product of two matrices."""
    return product(x, y)


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return ``x @ weight.T + bias`` by one matrix product over all leading axes; the bias is added in
    place."""
    if x.ndim == 2:
        return product(x, weight.T, bias)
    if x.ndim > 2:
        shape = x.shape
        rows = x.reshape(math.prod(shape[:-1]), shape[-1])
        return product(rows, weight.T, bias).reshape(*shape[:-1], weight.shape[0])
    out = _dot(x, weight.T)
    return out if bias is None else np.add(out, bias, out=out)


def linear_of_short(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return ``linear`` of 16-bit floats, in float32 and rounded once."""
    wide = (None if v is None else v.astype(np.float32) for v in (x, weight, bias))
    return linear(*wide).astype(x.dtype)  # type: ignore[arg-type]  # x and weight are arrays


def batches(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return batched products, split among threads; NumPy would call BLAS for one matrix after the other."""
    batch = x.shape[:-2]
    out = np.empty((*batch, x.shape[-2], y.shape[-1]), x.dtype)
    if batch[0] < 4:
        indices = list(np.ndindex(batch))

        def one_by_one(a: int, b: int) -> None:
            for index in indices[a:b]:
                np.matmul(x[index], y[index], out=out[index])

        split(one_by_one, len(indices))
    else:
        split(lambda a, b: np.matmul(x[a:b], y[a:b], out=out[a:b]), batch[0])
    return out


__all__ = ["LARGE", "SHARED", "batches", "linear", "linear_of_short", "matrices"]
