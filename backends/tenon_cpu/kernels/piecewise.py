"""ReLU and its gradient on large arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon_cpu.kernels import direct
from tenon_cpu.kernels.blocks import BLOCK, SHARED, integers_of, masked, plain
from tenon_cpu.threads import scratch, split

_SMALL = 1 << 12


def relu(x: Any, *, out: Any = None) -> Any:
    """Shared among threads where it is long."""
    if x.size < SHARED or not plain(x) or out is not None:
        return direct.relu(x, out=out)
    out = np.empty_like(x)
    flat, made, zero = x.reshape(-1), out.reshape(-1), x.dtype.type(0)
    split(lambda a, b: np.clip(flat[a:b], zero, np.inf, out=made[a:b]), flat.size)
    return out


def relu_grad(g: Any, out: Any) -> Any:
    """Selection by bits, block by block."""
    if g.size < _SMALL or not plain(g, out) or g.shape != out.shape:
        return direct.relu_grad(g, out)
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


KERNELS: dict[str, Kernel] = {"relu": relu, "relu_grad": relu_grad}

__all__ = ["KERNELS"]
