"""The logarithm of the gamma function and its first two derivatives, of float32 computed in float64."""

from __future__ import annotations

import math

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel

_ALONE = "void(float32[::1], float32[::1], int64, int64)"
_ZERO, _ONE, _HALF, _SIX = np.float64(0), np.float64(1), np.float64(0.5), np.float64(6)
_PI, _NAN, _ENDLESS = np.float64(math.pi), np.float64(np.nan), np.float64(np.inf)
#: Coefficients of the asymptotic series in 1 / y^2, from Bernoulli's numbers.
_D1, _D2, _D3, _D4 = np.float64(1 / 12), np.float64(-1 / 120), np.float64(1 / 252), np.float64(-1 / 240)
_D5, _D6 = np.float64(1 / 132), np.float64(-691 / 32760)
_T1, _T2, _T3, _T4 = np.float64(1 / 6), np.float64(-1 / 30), np.float64(1 / 42), np.float64(-1 / 30)
_T5 = np.float64(5 / 66)


@kernel(_ALONE)
def lgamma(x, out, start, stop):
    """``log |gamma(x)|`` by the C library."""
    for i in range(start, stop):
        out[i] = math.lgamma(x[i])


@inlined
def _digamma(v):
    """Digamma of ``v >= 0``: the series at ``v + 6``, less six reciprocals, added up as one quotient."""
    above, below = _ONE, v
    for k in range(1, 6):
        w = v + np.float64(k)
        above = above * w + below
        below *= w
    y = v + _SIX
    z = _ONE / (y * y)
    series = _D1 + z * (_D2 + z * (_D3 + z * (_D4 + z * (_D5 + z * _D6))))
    return math.log(y) - _HALF / y - z * series - above / below


@kernel(_ALONE)
def digamma(x, out, start, stop):
    """Digamma; NaN at negative poles, infinite at 0."""
    for i in range(start, stop):
        v = np.float64(x[i])
        if v == _ZERO:
            value = math.copysign(_ENDLESS, -v)
        elif v == _ENDLESS:
            value = v
        elif v < _ZERO:
            rest = v - np.trunc(v)
            value = _digamma(_ONE - v) - _PI / math.tan(_PI * rest) if rest != _ZERO else _NAN
        else:
            value = _digamma(v)
        out[i] = np.float32(value)


@kernel(_ALONE)
def trigamma(x, out, start, stop):
    """Trigamma; infinite at poles."""
    for i in range(start, stop):
        v = np.float64(x[i])
        w = _ONE - v if v < _ZERO else v
        value = _ZERO
        for k in range(6):
            u = w + np.float64(k)
            value += _ONE / (u * u)
        r = _ONE / (w + _SIX)
        z = r * r
        value += r + z * _HALF + r * z * (_T1 + z * (_T2 + z * (_T3 + z * (_T4 + z * _T5))))
        if v < _ZERO:
            rest = v - np.trunc(v)
            s = math.sin(_PI * rest)
            value = _PI * _PI / (s * s) - value
        out[i] = np.float32(value)
