"""GELU and SiLU, with their slopes and without, and gates of ReLU, in one walk over a float32 array each."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compile import kernel
from tenon_cpu.jit.vectors import exp, normal_tail, sigmoid

_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_DENSITY = np.float32(0.3989422804014327)
_CUBIC, _LINEAR = np.float32(0.044715 * 0.7978845608028654), np.float32(0.7978845608028654)
_THREE = np.float32(3)

_WITH_SLOPE = "void(float32[::1], float32[::1], float32[::1], int64, int64)"
_ALONE = "void(float32[::1], float32[::1], int64, int64)"


@kernel(_WITH_SLOPE)
def gelu(x, out, slope, start, stop):  # type: ignore[no-untyped-def]
    """``x F(x)`` and ``F(x) + x F'(x)``, F being the normal distribution function."""
    x, out, slope = x[start:stop], out[start:stop], slope[start:stop]
    for i in range(x.size):
        v = x[i]
        e = exp(-_HALF * v * v)
        tail = normal_tail(v, e)
        gate = tail if v < _ZERO else _ONE - tail
        out[i] = v * gate
        slope[i] = gate + v * e * _DENSITY


@kernel(_WITH_SLOPE)
def gelu_tanh(x, out, slope, start, stop):  # type: ignore[no-untyped-def]
    """The usual approximation of it."""
    x, out, slope = x[start:stop], out[start:stop], slope[start:stop]
    for i in range(x.size):
        v = x[i]
        s = v * v
        gate = sigmoid(_TWO * v * (s * _CUBIC + _LINEAR))  # (1 + tanh(u)) / 2, without its cancellation
        out[i] = v * gate
        steep = (s * _CUBIC * _THREE + _LINEAR) * v
        slope[i] = gate + (gate + gate) * (_ONE - gate) * steep


@kernel(_WITH_SLOPE)
def silu(x, out, slope, start, stop):  # type: ignore[no-untyped-def]
    """``x s`` and ``s (1 + x (1 - s))``, s being the sigmoid."""
    x, out, slope = x[start:stop], out[start:stop], slope[start:stop]
    for i in range(x.size):
        v = x[i]
        s = sigmoid(v)
        out[i] = v * s
        slope[i] = s * (_ONE + v * (_ONE - s))


@kernel(_ALONE)
def gelu_alone(x, out, start, stop):  # type: ignore[no-untyped-def]
    """The value only."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        v = x[i]
        tail = normal_tail(v, exp(-_HALF * v * v))
        out[i] = v * (tail if v < _ZERO else _ONE - tail)


@kernel(_ALONE)
def gelu_tanh_alone(x, out, start, stop):  # type: ignore[no-untyped-def]
    """The value only."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        v = x[i]
        out[i] = v * sigmoid(_TWO * v * (v * v * _CUBIC + _LINEAR))


@kernel(_ALONE)
def silu_alone(x, out, start, stop):  # type: ignore[no-untyped-def]
    """The value only."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        v = x[i]
        out[i] = v * sigmoid(v)


@kernel(_ALONE)
def relu(x, out, start, stop):  # type: ignore[no-untyped-def]
    """0 where ``x`` is below; NaN stays."""
    x, out = x[start:stop], out[start:stop]
    for i in range(x.size):
        out[i] = _ZERO if x[i] < _ZERO else x[i]


@kernel("void(float32[::1], float32[::1], float32[::1], int64, int64)")
def relu_grad(g, y, out, start, stop):  # type: ignore[no-untyped-def]
    """``g`` where ``y`` is not at or below 0."""
    g, y, out = g[start:stop], y[start:stop], out[start:stop]
    for i in range(g.size):
        out[i] = _ZERO if y[i] <= _ZERO else g[i]
