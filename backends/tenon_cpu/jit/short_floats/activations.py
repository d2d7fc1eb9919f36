"""GELU and SiLU of bfloat16, loaded and stored as their bits, with their slopes and without."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tenon_cpu.jit.compiler.compile import kernel
from tenon_cpu.jit.eager_ops.calls import plain, share
from tenon_cpu.jit.loops.activations import HALF, gelu_gate, gelu_slope, silu_slope, tanh_gate, tanh_slope
from tenon_cpu.jit.loops.vectors import exp, sigmoid
from tenon_cpu.jit.short_floats.rows import narrow, wide

BFLOAT = np.dtype(ml_dtypes.bfloat16)
_WITH_SLOPE = "void(uint16[::1], uint16[::1], uint16[::1], int64, int64)"
_VALUES = "void(uint16[::1], uint16[::1], int64, int64)"


@kernel(_WITH_SLOPE)
def gelu(x, out, slope, start, stop):
    """Values and slopes of elements ``start`` to ``stop``."""
    x, out, slope = x[start:stop], out[start:stop], slope[start:stop]
    for i in range(x.size):
        v = wide(x[i])
        e = exp(-HALF * v * v)
        gate = gelu_gate(v, e)
        out[i] = narrow(v * gate)
        slope[i] = narrow(gelu_slope(v, e, gate))


@kernel(_VALUES)
def gelu_value(x, out, start, stop):
    """Values of elements ``start`` to ``stop``."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        v = wide(x[i])
        e = exp(-HALF * v * v)
        gate = gelu_gate(v, e)
        out[i] = narrow(v * gate)


@kernel(_WITH_SLOPE)
def gelu_tanh(x, out, slope, start, stop):
    """Values and slopes of elements ``start`` to ``stop``."""
    x, out, slope = x[start:stop], out[start:stop], slope[start:stop]
    for i in range(x.size):
        v = wide(x[i])
        gate = tanh_gate(v, v * v)
        out[i] = narrow(v * gate)
        slope[i] = narrow(tanh_slope(v, v * v, gate))


@kernel(_VALUES)
def gelu_tanh_value(x, out, start, stop):
    """Values of elements ``start`` to ``stop``."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        v = wide(x[i])
        gate = tanh_gate(v, v * v)
        out[i] = narrow(v * gate)


@kernel(_WITH_SLOPE)
def silu(x, out, slope, start, stop):
    """Values and slopes of elements ``start`` to ``stop``."""
    x, out, slope = x[start:stop], out[start:stop], slope[start:stop]
    for i in range(x.size):
        v = wide(x[i])
        gate = sigmoid(v)
        out[i] = narrow(v * gate)
        slope[i] = narrow(silu_slope(v, gate))


@kernel(_VALUES)
def silu_value(x, out, start, stop):
    """Values of elements ``start`` to ``stop``."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        v = wide(x[i])
        gate = sigmoid(v)
        out[i] = narrow(v * gate)


WITH_SLOPE = {"gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
ALONE = {"gelu": gelu_value, "gelu_tanh": gelu_tanh_value, "silu": silu_value}


def activated(name: str, x: np.ndarray, *, slope: bool) -> tuple[np.ndarray, ...]:
    """The activation called ``name`` of a bfloat16 array, and with ``slope`` its slope."""
    x = plain(x)
    outs = [np.empty_like(x) for _ in range(1 + slope)]
    arrays = tuple([a.reshape(-1).view(np.uint16) for a in (x, *outs)])
    share((WITH_SLOPE if slope else ALONE)[name], arrays, x.size, 8 * x.size)
    return tuple(outs)


__all__ = ["activated"]
