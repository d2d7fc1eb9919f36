"""Affine maps and matrix products, cut among the threads of ``tenon_cpu.threads``.

Large products are cut here and not by BLAS: after a product of its own, BLAS's second thread spins for some
20 ms on the
core that the next kernel's second piece needs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import linear as _linear
from tenon_cpu.kernels import direct
from tenon_cpu.threads import alone, split

_REAL = frozenset("fd")
#: Multiplications from which a second thread pays: some 20 us of work for each.
_SHARED = 1 << 21
#: Multiplications from which BLAS would start threads of its own.
_LARGE = 1 << 16
_dot = np.dot


def product(x: Any, y: Any, bias: Any = None) -> Any:
    """``x[M, K] @ y[K, N] + bias[N]`` in one array; the longer side of the result is cut."""
    rows, columns = x.shape[0], y.shape[1]
    size = rows * columns * x.shape[1]
    if size < _SHARED:
        out = _dot(x, y) if size < _LARGE else alone(_dot, x, y)
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


def linear(f: Any, x: Any, weight: Any, bias: Any) -> Any:
    """One matrix product over all leading axes; the bias is added in place."""
    kind = x.dtype
    if (
        kind is not weight.dtype
        or kind.char not in _REAL
        or weight.ndim != 2
        or not x.ndim
        or (bias is not None and (bias.dtype is not kind or bias.shape != weight.shape[:1]))
        or x.shape[-1] != weight.shape[1]
    ):
        return _linear.decompose(f, x, weight, bias)
    if x.ndim == 2:
        return product(x, weight.T, bias)
    if x.ndim > 2:
        shape = x.shape
        rows = x.reshape(math.prod(shape[:-1]), shape[-1])
        return product(rows, weight.T, bias).reshape(*shape[:-1], weight.shape[0])
    out = _dot(x, weight.T)
    return out if bias is None else np.add(out, bias, out=out)


def matmul(x: Any, y: Any) -> Any:
    """Matrices are cut; of batches each thread takes some, where NumPy would call BLAS one by one."""
    if x.size * y.size < _LARGE:
        return direct.matmul(x, y)  # nothing to cut: 0.6 us less
    if x.ndim == 2 == y.ndim:
        if x.dtype is y.dtype and x.dtype.char in _REAL and x.shape[1] == y.shape[0]:
            return product(x, y)
        return direct.matmul(x, y)
    if (
        x.ndim < 3
        or y.ndim != x.ndim
        or x.dtype is not y.dtype
        or x.dtype.char not in _REAL
        or x.shape[:-2] != y.shape[:-2]
        or x.shape[-1] != y.shape[-2]
        or x.size * y.shape[-1] < _SHARED
    ):
        return direct.matmul(x, y)
    batch = x.shape[:-2]
    out = np.empty((*batch, x.shape[-2], y.shape[-1]), x.dtype)
    if batch[0] < 4:
        places = list(np.ndindex(batch))

        def one_by_one(a: int, b: int) -> None:
            for place in places[a:b]:
                np.matmul(x[place], y[place], out=out[place])

        split(one_by_one, len(places))
    else:
        split(lambda a, b: np.matmul(x[a:b], y[a:b], out=out[a:b]), batch[0])
    return out


KERNELS: dict[str, Kernel] = {"matmul": matmul}
COMPOSITES: dict[str, Kernel] = {"linear": linear}

__all__ = ["COMPOSITES", "KERNELS"]
