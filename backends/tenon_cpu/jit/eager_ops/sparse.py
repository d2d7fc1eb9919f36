"""Products with a float32 weight in compressed rows, by compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon_cpu.jit.eager_ops.calls import FLOAT, fits, indices_fit, plain, share
from tenon_cpu.jit.loops import sparse

#: Multiplications from which a kernel is worth loading numba for.
_WORTH = 1 << 12
_COLUMN = np.dtype(np.uint16)


def multiplies(x: Any, values: Any, columns: Any, starts: Any, bias: Any) -> bool:
    """Whether the arrays are such rows, large enough, and all columns lie inside."""
    affine = [] if bias is None else [bias]
    rows, width = starts.shape[0] - 1, x.shape[-1]
    return (
        values.size * (x.size // max(width, 1)) >= _WORTH
        and fits(x, values, *affine)
        and columns.dtype is _COLUMN
        and indices_fit(starts)
        and columns.shape == values.shape
        and all(b.shape == (rows,) for b in affine)
        and not _outside(columns, starts, values.size, width)
    )


def sparse_linear(x: Any, values: Any, columns: Any, starts: Any, bias: Any) -> Any:
    """With the rows of ``x`` as columns, so that every value meets a run of numbers."""
    rows, width = starts.shape[0] - 1, x.shape[-1]
    work = values.size * (x.size // max(width, 1))
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


__all__ = ["multiplies", "sparse_linear"]
