"""Layer norm over rows so long that a sum in float32 would lose digits: sums of runs are added in float64.

For rows of ordinary length, which have the kernels of ``rows.py``, that would cost a quarter of the time and
gain nothing. Long rows are read from memory in every pass, so weight and bias have a pass of their own.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.rows import squared_deviations
from tenon_cpu.jit.loops.sums import RUN, long_total
from tenon_cpu.jit.loops.vectors import plus

_ZERO = np.float32(0)
#: The length from which rows count as long.
LONG = 1 << 17


@inlined
def long_squared_deviations(row, mean):
    """The sum of the squares of ``row - mean``."""
    s = np.float64(0)
    for first in range(0, row.size, RUN):
        s += squared_deviations(row[first : first + RUN], mean)
    return s


@inlined
def slopes(g_row, row, mean):
    """The sums of ``g_row`` and of ``g_row * (row - mean)``."""
    a, b = _ZERO, _ZERO
    for i in range(row.size):
        a = plus(a, g_row[i])
        b = plus(b, g_row[i] * (row[i] - mean))
    return a, b


@kernel("void(float32[:,::1], float32, float32[:,::1], float32[::1], float32[::1], int64, int64)")
def standardise(x, eps, out, means, deviations, start, stop):
    """Result, mean and reciprocal deviation of each long row."""
    for r in range(start, stop):
        row, out_row = x[r], out[r]
        mean = np.float32(long_total(row) / row.size)
        deviation = np.float32(1 / np.sqrt(long_squared_deviations(row, mean) / row.size + eps))
        for i in range(row.size):
            out_row[i] = (row[i] - mean) * deviation
        means[r] = mean
        deviations[r] = deviation


@kernel("void(float32[:,::1], float32[:,::1], float32[::1], float32[::1], float32[:,::1], int64, int64)")
def standardise_grad(g, x, means, deviations, out, start, stop):
    """The gradient of ``standardise`` for its input."""
    for r in range(start, stop):
        g_row, row, out_row = g[r], x[r], out[r]
        mean, deviation = means[r], deviations[r]
        g_total, product_total = np.float64(0), np.float64(0)
        for first in range(0, row.size, RUN):
            a, b = slopes(g_row[first : first + RUN], row[first : first + RUN], mean)
            g_total += a
            product_total += b
        pull = np.float32(g_total / row.size)
        turn = np.float32(product_total / row.size * deviation * deviation)
        for i in range(row.size):
            out_row[i] = (g_row[i] - pull - (row[i] - mean) * turn) * deviation
