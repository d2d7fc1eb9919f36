"""Products with a float32 weight in compressed rows (CSR), by compiled kernels."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.eager_ops.calls import FLOAT, fits, indices_fit, plain, share
from tenon_cpu.jit.loops import sparse

#: Multiplications from which the compiled kernel is used.
_WORTH = 1 << 12
_COLUMN = np.dtype(np.uint16)


def is_supported(
    x: np.ndarray, values: np.ndarray, columns: np.ndarray, starts: np.ndarray, bias: np.ndarray | None
) -> bool:
    """Whether the arrays are valid compressed rows, of the kernel's dtypes, and large enough for it."""
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


def sparse_linear(
    x: np.ndarray, values: np.ndarray, columns: np.ndarray, starts: np.ndarray, bias: np.ndarray | None
) -> np.ndarray:
    """``x @ weight.T + bias``; ``x`` is transposed, so that every value multiplies a contiguous row."""
    rows, width = starts.shape[0] - 1, x.shape[-1]
    work = values.size * (x.size // max(width, 1))
    transposed = _transposed(plain(x).reshape(-1, width))
    shift = np.zeros(rows, FLOAT) if bias is None else plain(bias)
    out = np.empty((rows, transposed.shape[1]), FLOAT)
    share(sparse.linear, (transposed, plain(values), plain(columns), starts, shift, out), rows, 2 * work)
    return _transposed(out).reshape(*x.shape[:-1], rows)


def _transposed(x: np.ndarray) -> np.ndarray:
    """The transpose of a matrix, in C order."""
    rows, width = x.shape
    if rows == 1 or width == 1:
        return x.reshape(width, rows)
    out = np.empty((width, rows), FLOAT)
    share(sparse.transpose, (x, out), -(-rows // sparse.TILE), 5 * x.size)
    return out


def _outside(columns: np.ndarray, starts: np.ndarray, count: int, width: int) -> bool:
    """Whether a column index or a row's start is out of range."""
    rows = bool(starts[0] != 0 or starts[-1] != count or (starts[1:] < starts[:-1]).any())
    return rows or bool(columns.max(initial=0) >= width)


__all__ = ["is_supported", "sparse_linear"]
