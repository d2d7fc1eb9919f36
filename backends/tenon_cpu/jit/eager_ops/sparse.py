"""Products with a float32 weight in compressed rows, by compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import sparse_linear as _sparse_linear
from tenon_cpu.jit.eager_ops.calls import FLOAT, fits, indices_fit, plain, share
from tenon_cpu.jit.loops import sparse

#: Multiplications from which a kernel is worth loading numba for.
_WORTH = 1 << 12
_COLUMN = np.dtype(np.uint16)


def sparse_linear(f: Any, x: Any, values: Any, columns: Any, starts: Any, bias: Any) -> Any:
    """With the rows of ``x`` as columns, so that every value meets a run of numbers."""
    affine = [] if bias is None else [bias]
    rows, width = starts.shape[0] - 1, x.shape[-1]
    work = values.size * (x.size // max(width, 1))
    if (
        work < _WORTH
        or not fits(x, values, *affine)
        or columns.dtype is not _COLUMN
        or not indices_fit(starts)
        or columns.shape != values.shape
        or any(b.shape != (rows,) for b in affine)
        or _outside(columns, starts, values.size, width)
    ):
        return _sparse_linear.decompose(f, x, values, columns, starts, bias)
    turned = _turned(plain(x).reshape(-1, width))
    shift = np.zeros(rows, FLOAT) if bias is None else plain(bias)
    made = np.empty((rows, turned.shape[1]), FLOAT)
    share(sparse.linear, (turned, plain(values), plain(columns), starts, shift, made), rows, 2 * work)
    return _turned(made).reshape(*x.shape[:-1], rows)


def _turned(x: Any) -> Any:
    rows, width = x.shape
    if rows == 1 or width == 1:
        return x.reshape(width, rows)
    out = np.empty((width, rows), FLOAT)
    share(sparse.turn, (x, out), -(-rows // sparse.TILE), 5 * x.size)
    return out


def _outside(columns: Any, starts: Any, count: int, width: int) -> bool:
    """Whether a column or a row lies outside of what there is."""
    rows = bool(starts[0] != 0 or starts[-1] != count or (starts[1:] < starts[:-1]).any())
    return rows or bool(columns.max(initial=0) >= width)


COMPOSITES: dict[str, Kernel] = {"sparse_linear": sparse_linear}
