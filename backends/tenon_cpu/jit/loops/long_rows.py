"""Layer norm over rows so long that a sum in float32 would lose digits: runs of it join in float64.

Rows of ordinary length keep the kernels of ``rows.py``: there the joins would cost a quarter of the time and
gain nothing. These read a row from memory anyway, so weight and bias are left to a pass of their own.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.rows import spread
from tenon_cpu.jit.loops.sums import RUN, long_total
from tenon_cpu.jit.loops.vectors import plus

_ZERO = np.float32(0)
#: The length from which rows count as long.
LONG = 1 << 17


@inlined
def long_spread(row, mean):
    """The sum of the squares of ``row - mean``."""
    s = np.float64(0)
    for first in range(0, row.size, RUN):
        s += spread(row[first : first + RUN], mean)
    return s


@inlined
def slopes(given, row, mean):
    """The sums of ``given`` and of ``given * (row - mean)``."""
    a, b = _ZERO, _ZERO
    for i in range(row.size):
        a = plus(a, given[i])
        b = plus(b, given[i] * (row[i] - mean))
    return a, b


@kernel("void(float32[:,::1], float32, float32[:,::1], float32[::1], float32[::1], int64, int64)")
def standardise(x, eps, out, means, deviations, start, stop):
    """Result, mean and reciprocal deviation."""
    for r in range(start, stop):
        row, made = x[r], out[r]
        mean = np.float32(long_total(row) / row.size)
        deviation = np.float32(1 / np.sqrt(long_spread(row, mean) / row.size + eps))
        for i in range(row.size):
            made[i] = (row[i] - mean) * deviation
        means[r] = mean
        deviations[r] = deviation


@kernel("void(float32[:,::1], float32[:,::1], float32[::1], float32[::1], float32[:,::1], int64, int64)")
def standardise_grad(g, x, means, deviations, out, start, stop):
    """The input's gradient of ``standardise``."""
    for r in range(start, stop):
        given, row, made = g[r], x[r], out[r]
        mean, deviation = means[r], deviations[r]
        one, two = np.float64(0), np.float64(0)
        for first in range(0, row.size, RUN):
            a, b = slopes(given[first : first + RUN], row[first : first + RUN], mean)
            one += a
            two += b
        pull = np.float32(one / row.size)
        turn = np.float32(two / row.size * deviation * deviation)
        for i in range(row.size):
            made[i] = (given[i] - pull - (row[i] - mean) * turn) * deviation
