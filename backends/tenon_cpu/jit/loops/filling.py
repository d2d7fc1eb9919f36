"""Filling float32 arrays with a number, and reversing rows."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import kernel

_ONE = np.uint64(1)


@kernel("void(float32[::1], float32, int64, int64)")
def fill(x, value, start, stop):
    """Set all elements to ``value``."""
    x = x[start:stop]
    for i in range(x.size):
        x[i] = value


@kernel("void(float32[:,::1], float32[:,::1], int64, int64)")
def reverse(x, out, start, stop):
    """Reverse each row. Unsigned indices are not tested for negative ones, so that LLVM vectorises this."""
    size = np.uint64(x.shape[1])
    for r in range(start, stop):
        row, out_row = x[r], out[r]
        for i in range(size):
            out_row[i] = row[size - _ONE - i]
