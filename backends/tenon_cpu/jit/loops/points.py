"""Quotients of float32, and what they leave, where whole parts are exact in float64's digits; the tangent."""

from __future__ import annotations

import math

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel

_ZERO, _ONE = np.float32(0), np.float32(1)
_INFINITY, _MOST = np.float32(np.inf), np.float32(4194304)
#: Adding it rounds a float64; pi / 2 in 33 bits, whose multiples up to 2^20 are exact, and the rest.
_SHIFT, _PER_TURN = np.float64(1.5 * 2.0**52), np.float64(2 / math.pi)
_TURN, _TURN_REST = np.float64(1.5707963267341256), np.float64(6.077100506506192e-11)
#: Beyond it multiples are not exact.
_FAR, _ENDLESS = np.float64(2.0**20), np.float64(np.inf)
_NONE, _HALF, _UNIT, _TWO = np.float64(0), np.float64(0.5), np.float64(1), np.float64(2)
_T0, _T1, _T2, _T3 = map(
    np.float64, (0.33333349770205783, 0.1333266280339912, 0.054059978242364116, 0.021281862183198285)
)
_T4, _T5, _T6 = map(np.float64, (0.010836671738116414, 8.842827419744767e-05, 0.004376830633672057))
_PAIRS = "void(float32[::1], float32[::1], float32[::1], uint8[::1], int64, int64)"


@inlined
def _divided(v, w):
    """The quotient's whole part, what is left of ``v``, and whether the quotient was rounded up to it."""
    whole = np.floor(v / w)
    left = np.float32(np.float64(v) - np.float64(whole) * np.float64(w))
    return whole, left, left < _ZERO if w > _ZERO else left > _ZERO


@inlined
def _unusual(whole, w):
    """1 where the whole part may not be exact, or there is none."""
    return np.int32(not abs(whole) < _MOST) | np.int32(abs(w) == _INFINITY)


@kernel(_PAIRS)
def remainder(x, y, out, unusual, start, stop):
    """Python's modulo where the quotient's whole part is exact; ``unusual`` says that one was not."""
    x, y, out = x[start:stop], y[start:stop], out[start:stop]
    far = np.int32(0)
    for i in range(out.size):
        whole, left, flipped = _divided(x[i], y[i])
        far |= _unusual(whole, y[i])
        out[i] = left + y[i] if flipped else left
    if far:
        unusual[0] = 1


@kernel(_PAIRS)
def floor_divide(x, y, out, unusual, start, stop):
    """The quotient's whole part likewise."""
    x, y, out = x[start:stop], y[start:stop], out[start:stop]
    far = np.int32(0)
    for i in range(out.size):
        whole, _, flipped = _divided(x[i], y[i])
        far |= _unusual(whole, y[i])
        out[i] = whole - _ONE if flipped else whole
    if far:
        unusual[0] = 1


@kernel(_PAIRS)
def fmod(x, y, out, unusual, start, stop):
    """C's modulo, likewise: what is left has the sign of ``x``."""
    x, y, out = x[start:stop], y[start:stop], out[start:stop]
    far = np.int32(0)
    for i in range(out.size):
        v, w = abs(x[i]), abs(y[i])
        whole = np.floor(v / w)
        far |= _unusual(whole, w)
        left = np.float32(np.float64(v) - np.float64(whole) * np.float64(w))
        out[i] = math.copysign(left + w if left < _ZERO else left, x[i])
    if far:
        unusual[0] = 1


@kernel("void(float32[::1], float32[::1], uint8[::1], int64, int64)")
def tan(x, out, unusual, start, stop):
    """The tangent, by what float64 leaves of multiples of pi / 2; ``unusual`` says that one was too large."""
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
