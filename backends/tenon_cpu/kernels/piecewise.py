"""The gradient of ReLU on large arrays."""

from __future__ import annotations

import numpy as np

from tenon_cpu.kernels.blocks import BLOCK, SHARED, integers_of, masked
from tenon_cpu.threads import scratch, split


def relu_grad(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Selection by bits, block by block."""
    made = np.empty_like(g)
    flat, gates, result = g.reshape(-1), out.reshape(-1), made.reshape(-1)
    step, zero = BLOCK // g.itemsize, g.dtype.type(0)

    def piece(start: int, stop: int) -> None:
        closed = scratch.get("closed", (step,), np.bool_)
        wide = scratch.get("wide", (step,), integers_of(flat).dtype)
        for a in range(start, stop, step):
            b = min(a + step, stop)
            shut = np.less_equal(gates[a:b], zero, out=closed[: b - a])
            masked(flat[a:b], shut, wide[: b - a], result[a:b])

    if flat.size < SHARED:
        piece(0, flat.size)
    else:
        split(piece, flat.size)
    return made


__all__ = ["relu_grad"]
