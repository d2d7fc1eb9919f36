"""GELU and SiLU, with their slopes and without, ReLU and clamping, each in one pass over a float32 array."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.vectors import exp, normal_tail, sigmoid

HALF = np.float32(0.5)
_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
_DENSITY = np.float32(0.3989422804014327)
_CUBIC, _LINEAR = np.float32(0.044715 * 0.7978845608028654), np.float32(0.7978845608028654)
_THREE = np.float32(3)

_WITH_SLOPE = "void(float32[::1], float32[::1], float32[::1], int64, int64)"
_VALUES = "void(float32[::1], float32[::1], int64, int64)"


@inlined
def gelu_gate(v, e):
    """The normal distribution function of ``v``; ``e`` is ``exp(-v^2 / 2)``."""
    tail = normal_tail(v, e)
    return tail if v < _ZERO else _ONE - tail


@inlined
def gelu_slope(v, e, gate):
    """The derivative of ``v * gelu_gate``."""
    return gate + v * e * _DENSITY


@inlined
def tanh_gate(v, s):
    """The approximation ``(1 + tanh(u)) / 2`` of ``gelu_gate``, without cancellation; ``s`` is ``v^2``."""
    return sigmoid(_TWO * v * (s * _CUBIC + _LINEAR))


@inlined
def tanh_slope(v, s, gate):
    """The derivative of ``v * tanh_gate``."""
    return gate + (gate + gate) * (_ONE - gate) * ((s * _CUBIC * _THREE + _LINEAR) * v)


@inlined
def silu_slope(v, gate):
    """The derivative of ``v * sigmoid(v)``."""
    return gate * (_ONE + v * (_ONE - gate))


@kernel(_WITH_SLOPE)
def gelu(x, out, slope, start, stop):
    """Values and slopes of elements ``start`` to ``stop``."""
    x, out, slope = x[start:stop], out[start:stop], slope[start:stop]
    for i in range(x.size):
        v = x[i]
        e = exp(-HALF * v * v)
        gate = gelu_gate(v, e)
        out[i] = v * gate
        slope[i] = gelu_slope(v, e, gate)


@kernel(_VALUES)
def gelu_value(x, out, start, stop):
    """Values of elements ``start`` to ``stop``."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        v = x[i]
        e = exp(-HALF * v * v)
        gate = gelu_gate(v, e)
        out[i] = v * gate


@kernel(_WITH_SLOPE)
def gelu_tanh(x, out, slope, start, stop):
    """Values and slopes of elements ``start`` to ``stop``."""
    x, out, slope = x[start:stop], out[start:stop], slope[start:stop]
    for i in range(x.size):
        v = x[i]
        gate = tanh_gate(v, v * v)
        out[i] = v * gate
        slope[i] = tanh_slope(v, v * v, gate)


@kernel(_VALUES)
def gelu_tanh_value(x, out, start, stop):
    """Values of elements ``start`` to ``stop``."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        v = x[i]
        gate = tanh_gate(v, v * v)
        out[i] = v * gate


@kernel(_WITH_SLOPE)
def silu(x, out, slope, start, stop):
    """Values and slopes of elements ``start`` to ``stop``."""
    x, out, slope = x[start:stop], out[start:stop], slope[start:stop]
    for i in range(x.size):
        v = x[i]
        gate = sigmoid(v)
        out[i] = v * gate
        slope[i] = silu_slope(v, gate)


@kernel(_VALUES)
def silu_value(x, out, start, stop):
    """Values of elements ``start`` to ``stop``."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        v = x[i]
        gate = sigmoid(v)
        out[i] = v * gate


@kernel(_VALUES)
def relu(x, out, start, stop):
    """The larger of ``x`` and 0; NaN stays."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        out[i] = _ZERO if x[i] < _ZERO else x[i]


@kernel("void(float32[::1], float32, float32, int64, int64)")
def clamp_inplace(x, low, high, start, stop):
    """Clamp ``x`` in place; ``high`` where the bounds contradict each other; NaN stays."""
    x = x[start:stop]
    for i in range(x.size):
        v = low if x[i] < low else x[i]
        x[i] = high if v > high else v


@kernel("void(float32[::1], float32[::1], float32[::1], int64, int64)")
def relu_grad(g, y, out, start, stop):
    """``g`` where ``y`` is above 0 or NaN, else 0."""
    g, y, out = g[start:stop], y[start:stop], out[start:stop]
    for i in range(g.size):
        out[i] = _ZERO if y[i] <= _ZERO else g[i]
