"""Sums of float32 over outer and inner axes: runs are added in float32 vectors, their sums in float64."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.columns import add_and_reset
from tenon_cpu.jit.loops.rows import BLOCK, total

#: Elements of a run, which is added in float32.
RUN = 1024


@inlined
def long_total(row):
    """The sum of a row, in float64 over the sums of its runs."""
    s = np.float64(0)
    for first in range(0, row.size, RUN):
        s += total(row[first : first + RUN])
    return s


@kernel("void(float32[:,:,::1], float32[::1], int64, int64)")
def sum_outer_and_inner(x, out, start, stop):
    """``out[b]`` is the sum of ``x[:, b, :]``."""
    for b in range(start, stop):
        s = np.float64(0)
        for a in range(x.shape[0]):
            s += long_total(x[a, b])
        out[b] = s


@kernel("void(float32[:,:,::1], float64[:,::1], int64, int64)")
def sum_rows(x, out, start, stop):
    """``out[a]`` is the sum of the rows of ``x[a]``, which are no wider than a block of columns."""
    for a in range(start, stop):
        totals, part = out[a], np.zeros(x.shape[2], np.float32)
        totals[:] = 0
        for r in range(x.shape[1]):
            row = x[a, r]
            for j in range(row.size):
                part[j] += row[j]
            if r % BLOCK == BLOCK - 1:
                add_and_reset(part, totals)
        add_and_reset(part, totals)
