"""Remainders of float32, where the quotient is exact in float64, and the tangent."""

from __future__ import annotations

import math

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel

_ZERO, _ONE = np.float32(0), np.float32(1)
_INFINITY, _MOST = np.float32(np.inf), np.float32(4194304)
#: A number whose addition rounds a float64; pi / 2 in 33 bits, with exact multiples up to 2^20, and the rest.
_SHIFT, _PER_TURN = np.float64(1.5 * 2.0**52), np.float64(2 / math.pi)
_TURN, _TURN_REST = np.float64(1.5707963267341256), np.float64(6.077100506506192e-11)
#: The bound of exact multiples.
_FAR, _ENDLESS = np.float64(2.0**20), np.float64(np.inf)
_NONE, _HALF, _UNIT, _TWO = np.float64(0), np.float64(0.5), np.float64(1), np.float64(2)
_T0, _T1, _T2, _T3 = map(
    np.float64, (0.33333349770205783, 0.1333266280339912, 0.054059978242364116, 0.021281862183198285)
)
_T4, _T5, _T6 = map(np.float64, (0.010836671738116414, 8.842827419744767e-05, 0.004376830633672057))
_PAIRS = "void(float32[::1], float32[::1], float32[::1], uint8[::1], int64, int64)"


@inlined
def _divided(v, w):
    """The quotient, rounded down, the remainder, and whether the division rounded the quotient up."""
    quotient = np.floor(v / w)
    rest = np.float32(np.float64(v) - np.float64(quotient) * np.float64(w))
    return quotient, rest, math.copysign(rest, w) != rest


@inlined
def _unusual(quotient, w):
    """1 if the quotient may not be exact, or does not exist."""
    return np.int32(not abs(quotient) < _MOST) | np.int32(abs(w) == _INFINITY)


@kernel(_PAIRS)
def remainder(x, y, out, unusual, start, stop):
    """Python's modulo, but zeros have the sign of ``x``; ``unusual[0]`` is 1 if a quotient is not exact."""
    x, y, out = x[start:stop], y[start:stop], out[start:stop]
    far = np.int32(0)
    for i in range(out.size):
        quotient, rest, flipped = _divided(x[i], y[i])
        far |= _unusual(quotient, y[i])
        rest = rest + y[i] if flipped else rest
        out[i] = x[i] * _ZERO if rest == _ZERO else rest
    if far:
        unusual[0] = 1


@kernel(_PAIRS)
def floor_divide(x, y, out, unusual, start, stop):
    """The quotient, rounded down; ``unusual[0]`` becomes 1 if one is not exact."""
    x, y, out = x[start:stop], y[start:stop], out[start:stop]
    far = np.int32(0)
    for i in range(out.size):
        quotient, _, flipped = _divided(x[i], y[i])
        far |= _unusual(quotient, y[i])
        out[i] = quotient - _ONE if flipped else quotient
    if far:
        unusual[0] = 1


@kernel(_PAIRS)
def fmod(x, y, out, unusual, start, stop):
    """C's modulo, with the sign of ``x``; ``unusual[0]`` becomes 1 if a quotient is not exact."""
    x, y, out = x[start:stop], y[start:stop], out[start:stop]
    far = np.int32(0)
    for i in range(out.size):
        v, w = abs(x[i]), abs(y[i])
        quotient = np.floor(v / w)
        far |= _unusual(quotient, w)
        rest = np.float32(np.float64(v) - np.float64(quotient) * np.float64(w))
        out[i] = math.copysign(rest + w if rest < _ZERO else rest, x[i])
    if far:
        unusual[0] = 1


@kernel("void(float32[::1], float32[::1], uint8[::1], int64, int64)")
def tan(x, out, unusual, start, stop):
    """The tangent of the remainder by pi / 2; ``unusual[0]`` becomes 1 if an argument is too large."""
    x, out = x[start:stop], out[start:stop]
    far = np.int32(0)
    for i in range(out.size):
        v = np.float64(x[i])
        shifted = v * _PER_TURN + _SHIFT
        k = shifted - _SHIFT
        r = (v - k * _TURN) - k * _TURN_REST
        z = r * r
        p = _T3 + z * (_T4 + z * (_T5 + z * _T6))
        p = _T0 + z * (_T1 + z * (_T2 + z * p))
        t = r + r * z * p
        odd = k - _TWO * np.floor(k * _HALF) != _NONE
        far |= np.int32(abs(v) > _FAR) & np.int32(abs(v) < _ENDLESS)
        out[i] = np.float32(-_UNIT / t if odd else t)
    if far:
        unusual[0] = 1
