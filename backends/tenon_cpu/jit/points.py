"""Quotients of float32 rounded down, and what they leave, where whole parts are exact in float64's digits."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compile import inlined, kernel

_ZERO, _ONE = np.float32(0), np.float32(1)
_INFINITY, _MOST = np.float32(np.inf), np.float32(4194304)
_PAIRS = "void(float32[::1], float32[::1], float32[::1], uint8[::1], int64, int64)"


@inlined
def _divided(v, w):  # type: ignore[no-untyped-def]
    """The quotient's whole part, what is left of ``v``, and whether the quotient was rounded up to it."""
    whole = np.floor(v / w)
    left = np.float32(np.float64(v) - np.float64(whole) * np.float64(w))
    return whole, left, left < _ZERO if w > _ZERO else left > _ZERO


@inlined
def _unusual(whole, w):  # type: ignore[no-untyped-def]
    """1 where the whole part may not be exact, or there is none."""
    return np.int32(not abs(whole) < _MOST) | np.int32(abs(w) == _INFINITY)


@kernel(_PAIRS)
def remainder(x, y, out, unusual, start, stop):  # type: ignore[no-untyped-def]
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
def floor_divide(x, y, out, unusual, start, stop):  # type: ignore[no-untyped-def]
    """The quotient's whole part likewise."""
    x, y, out = x[start:stop], y[start:stop], out[start:stop]
    far = np.int32(0)
    for i in range(out.size):
        whole, _, flipped = _divided(x[i], y[i])
        far |= _unusual(whole, y[i])
        out[i] = whole - _ONE if flipped else whole
    if far:
        unusual[0] = 1
