"""Softmax and sums over rows of bfloat16, read and written as their bits: no float32 array in between."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.eager_ops.calls import share
from tenon_cpu.jit.loops.rows import peak
from tenon_cpu.jit.loops.vectors import bits, exp_below, number, plus
from tenon_cpu.kernels.blocks import rows_of

_ZERO, _ONE = np.float32(0), np.float32(1)
_HALF_WAY, _LAST, _QUIET, _SHIFT = np.int32(0x7FFF), np.int32(1), np.int32(0x40), np.int32(16)
_BLOCK = 64  # rows added up before they join the rest: less rounding
_BFLOAT, _BITS = np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16)


@inlined
def wide(b):  # type: ignore[no-untyped-def]
    """The float32 that a bfloat16's bits stand for."""
    return number(np.int32(b) << _SHIFT)


@inlined
def narrow(x):  # type: ignore[no-untyped-def]
    """The bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    b = bits(x)
    high = b >> _SHIFT
    nearest = (b + (_HALF_WAY + (high & _LAST))) >> _SHIFT
    return np.uint16(high | _QUIET) if x != x else np.uint16(nearest)


@kernel("void(uint16[:,::1], uint16[:,::1], int64, int64)")
def softmax(x, out, start, stop):  # type: ignore[no-untyped-def]
    """As for float32, on a widened row."""
    row = np.empty(x.shape[1], np.float32)
    for r in range(start, stop):
        given, made = x[r], out[r]
        for i in range(row.size):
            row[i] = wide(given[i])
        top = peak(row)
        s = _ZERO
        for i in range(row.size):
            e = exp_below(row[i] - top)
            row[i] = e
            s = plus(s, e)
        part = _ONE / s
        for i in range(row.size):
            made[i] = narrow(row[i] * part)


@kernel("void(uint16[:,::1], uint16[:,::1], uint16[:,::1], int64, int64)")
def softmax_grad(g, y, out, start, stop):  # type: ignore[no-untyped-def]
    """``y * (g - sum(g * y))``."""
    for r in range(start, stop):
        given, row, made = g[r], y[r], out[r]
        s = _ZERO
        for i in range(row.size):
            s = plus(s, wide(given[i]) * wide(row[i]))
        for i in range(row.size):
            made[i] = narrow((wide(given[i]) - s) * wide(row[i]))


@kernel("void(uint16[:,::1], uint16[::1], int64, int64)")
def sum_rows(x, out, start, stop):  # type: ignore[no-untyped-def]
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
    made = out[start:stop]
    for i in range(total.size):
        made[i] = narrow(total[i])


def _matrix(x: Any) -> Any:
    return rows_of(x if x.flags.carray else np.array(x, order="C")).view(_BITS)


#: Ops along the last axis of bfloat16 arrays.
ROWS = {"softmax": softmax, "softmax_grad": softmax_grad}


def by_rows(name: str, *arrays: Any) -> Any:
    """One of ``ROWS``: ``softmax(x)`` or ``softmax_grad(g, y)``."""
    out = np.empty(arrays[0].shape, _BFLOAT)
    given = tuple([_matrix(a) for a in (*arrays, out)])
    share(ROWS[name], given, given[0].shape[0], 6 * out.size)
    return out


def summed(x: Any, shape: tuple[int, ...]) -> Any:
    """``x`` added up over its leading axes, down to ``shape``."""
    columns = math.prod(shape)
    matrix = (x if x.flags.carray else np.array(x, order="C")).reshape(-1, columns).view(_BITS)
    out = np.empty(columns, _BITS)
    share(sum_rows, (matrix, out), columns, 2 * x.size)
    return out.view(_BFLOAT).reshape(shape)


__all__ = ["ROWS", "by_rows", "summed"]
