"""Numbers written all over float32 arrays, and lines backwards."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import kernel

_ONE = np.uint64(1)


@kernel("void(float32[::1], float32, int64, int64)")
def fill(x, value, start, stop):
    """``value`` everywhere."""
    x = x[start:stop]
    for i in range(x.size):
        x[i] = value


@kernel("void(float32[:,::1], float32[:,::1], int64, int64)")
def reverse(x, out, start, stop):
    """Each row backwards. Unsigned places need no look at their sign, so that LLVM makes vectors of them."""
    size = np.uint64(x.shape[1])
    for r in range(start, stop):
        row, made = x[r], out[r]
        for i in range(size):
            made[i] = row[size - _ONE - i]
