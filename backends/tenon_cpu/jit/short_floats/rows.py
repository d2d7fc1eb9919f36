"""Softmax and sums over rows of bfloat16, loaded and stored as their bits, without float32 arrays."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.eager_ops.calls import plain, share
from tenon_cpu.jit.loops.rows import maximum
from tenon_cpu.jit.loops.vectors import bits, exp_below, number, plus
from tenon_cpu.kernels.blocks import rows_of

_ZERO, _ONE = np.float32(0), np.float32(1)
_HALF_WAY, _LAST, _QUIET, _SHIFT = np.int32(0x7FFF), np.int32(1), np.int32(0x40), np.int32(16)
_BLOCK = 64  # rows that are summed before they are added to the total: less rounding
_BFLOAT, _BITS = np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16)


@inlined
def wide(b):
    """The float32 with the value of a bfloat16, given as its bits."""
    return number(np.int32(b) << _SHIFT)


@inlined
def narrow(x):
    """The bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    b = bits(x)
    high = b >> _SHIFT
    nearest = (b + (_HALF_WAY + (high & _LAST))) >> _SHIFT
    return np.uint16(high | _QUIET) if x != x else np.uint16(nearest)


@kernel("void(uint16[:,::1], uint16[:,::1], int64, int64)")
def softmax(x, out, start, stop):
    """Softmax of rows ``start`` to ``stop``, as for float32 on a widened row."""
    row = np.empty(x.shape[1], np.float32)
    for r in range(start, stop):
        ins, outs = x[r], out[r]
        for i in range(row.size):
            row[i] = wide(ins[i])
        top = maximum(row)
        s = _ZERO
        for i in range(row.size):
            e = exp_below(row[i] - top)
            row[i] = e
            s = plus(s, e)
        part = _ONE / s
        for i in range(row.size):
            outs[i] = narrow(row[i] * part)


@kernel("void(uint16[:,::1], uint16[:,::1], uint16[:,::1], int64, int64)")
def softmax_grad(g, y, out, start, stop):
    """``y * (g - sum(g * y))``."""
    for r in range(start, stop):
        slopes, row, outs = g[r], y[r], out[r]
        s = _ZERO
        for i in range(row.size):
            s = plus(s, wide(slopes[i]) * wide(row[i]))
        for i in range(row.size):
            outs[i] = narrow((wide(slopes[i]) - s) * wide(row[i]))


@kernel("void(uint16[:,::1], uint16[::1], int64, int64)")
def sum_rows(x, out, start, stop):
    """Columns ``start`` to ``stop`` of the sum of all rows."""
    total = np.zeros(stop - start, np.float32)
    part = np.zeros(stop - start, np.float32)
    for first in range(0, x.shape[0], _BLOCK):
        for r in range(first, min(first + _BLOCK, x.shape[0])):
            row = x[r, start:stop]
            for i in range(row.size):
                part[i] += wide(row[i])
        for i in range(total.size):
            total[i] += part[i]
            part[i] = _ZERO
    outs = out[start:stop]
    for i in range(total.size):
        outs[i] = narrow(total[i])


def _matrix(x: np.ndarray) -> np.ndarray:
    """The bits of ``x`` as rows along its last axis."""
    return rows_of(plain(x)).view(_BITS)


#: Ops along the last axis of bfloat16 arrays.
ROWS = {"softmax": softmax, "softmax_grad": softmax_grad}


def by_rows(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The result of one of ``ROWS``: ``softmax(x)`` or ``softmax_grad(g, y)``."""
    out = np.empty(arrays[0].shape, _BFLOAT)
    matrices = tuple([_matrix(a) for a in (*arrays, out)])
    share(ROWS[name], matrices, matrices[0].shape[0], 6 * out.size)
    return out


def summed(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The sum of ``x`` over its leading axes, of shape ``shape``."""
    columns = math.prod(shape)
    matrix = plain(x).reshape(-1, columns).view(_BITS)
    out = np.empty(columns, _BITS)
    share(sum_rows, (matrix, out), columns, 2 * x.size)
    return out.view(_BFLOAT).reshape(shape)


__all__ = ["ROWS", "by_rows", "summed"]
