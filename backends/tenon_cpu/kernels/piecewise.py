"""The gradient of ReLU on large arrays."""

from __future__ import annotations

import numpy as np

from tenon_cpu.kernels.blocks import BLOCK, SHARED, integers_of, masked
from tenon_cpu.threads import scratch, split


def relu_grad(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return 0 where ``out <= 0``, else ``g``, selected by bits, block by block."""
    dx = np.empty_like(g)
    flat_g, flat_out, flat_dx = g.reshape(-1), out.reshape(-1), dx.reshape(-1)
    step, zero = BLOCK // g.itemsize, g.dtype.type(0)

    def piece(start: int, stop: int) -> None:
        closed = scratch.get("closed", (step,), np.bool_)
        wide = scratch.get("wide", (step,), integers_of(flat_g).dtype)
        for a in range(start, stop, step):
            b = min(a + step, stop)
            mask = np.less_equal(flat_out[a:b], zero, out=closed[: b - a])
            masked(flat_g[a:b], mask, wide[: b - a], flat_dx[a:b])

    if flat_g.size < SHARED:
        piece(0, flat_g.size)
    else:
        split(piece, flat_g.size)
    return dx


__all__ = ["relu_grad"]
