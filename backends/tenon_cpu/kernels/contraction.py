"""Affine maps, and batches of small matrix products shared among threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import linear as _linear
from tenon_cpu.kernels import direct
from tenon_cpu.threads import split

_REAL = frozenset("fd")
#: Multiplications in a whole batch below which one thread is enough.
_SHARED = 1 << 21
_dot = np.dot


def linear(f: Any, x: Any, weight: Any, bias: Any) -> Any:
    """One matrix product over all leading axes; the bias is added in place."""
    kind = x.dtype
    if (
        kind is not weight.dtype
        or kind.char not in _REAL
        or weight.ndim != 2
        or not x.ndim
        or (bias is not None and (bias.dtype is not kind or bias.shape != weight.shape[:1]))
    ):
        return _linear.decompose(f, x, weight, bias)
    if x.ndim < 3:
        out = _dot(x, weight.T)
    else:
        shape = x.shape
        out = _dot(x.reshape(math.prod(shape[:-1]), shape[-1]), weight.T).reshape(
            *shape[:-1], weight.shape[0]
        )
    if bias is not None:
        np.add(out, bias, out=out)
    return out


def matmul(x: Any, y: Any) -> Any:
    """Batches of products: one thread each for parts of the batch, where NumPy would call BLAS one by one."""
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
    count = math.prod(batch)
    if len(batch) == 1 or batch[0] >= 4:
        split(lambda a, b: np.matmul(x[a:b], y[a:b], out=out[a:b]), batch[0])
        return out
    split(lambda a, b: [_product(x, y, out, np.unravel_index(i, batch)) for i in range(a, b)], count)
    return out


def _product(x: Any, y: Any, out: Any, place: Any) -> None:
    np.matmul(x[place], y[place], out=out[place])


KERNELS: dict[str, Kernel] = {"matmul": matmul}
COMPOSITES: dict[str, Kernel] = {"linear": linear}

__all__ = ["COMPOSITES", "KERNELS"]
