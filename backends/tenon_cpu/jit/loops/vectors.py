"""float32 functions for compiled loops, written so that LLVM vectorises them.

numba calls the C library's ``expf`` for each number. These functions have no branch and no call: a
polynomial, and a power of two built from bits. NaN propagates, infinities give the limits, errors are a few
units in the last place. ``plus`` adds in any order, which allows vectorised sums; nothing else may be
reordered, or the rounding in ``exp`` would be optimised away.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined

_LOG2E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_ROUND = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, in the low bits
_E6, _E5, _E4 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_E3, _E2, _E1 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_HIGH, _LOW, _LOWEST = np.float32(89.0), np.float32(-104.0), np.float32(-88.0)
_ONE = np.float32(1)
_BIAS, _SHIFT = np.int32(127), np.int32(23)
_NOT_SIGN, _LAST = np.int32(0x7FFFFFFF), np.int32(31)

#: ``erfc(|x| / sqrt(2)) / 2 = exp(-x^2 / 2) p(t)``, ``t = 1 / (1 + k |x|)``: Abramowitz and Stegun 7.1.26
#: with three more terms, fitted to a relative error below 2e-7.
_STEP = np.float32(0.3275911 * 0.7071067811865476)
_N1, _N2 = np.float32(0.18501197498925018 / 2), np.float32(0.181305327840161 / 2)
_N3, _N4 = np.float32(0.2025650249183898 / 2), np.float32(0.03568888290027237 / 2)
_N5, _N6 = np.float32(0.4349513279587626 / 2), np.float32(-0.3870095181839422 / 2)
_N7, _N8 = np.float32(0.4861846486839383 / 2), np.float32(-0.13869747924110734 / 2)


@inlined(fastmath={"reassoc", "contract", "nsz"})
def plus(a, b):
    """``a + b``, in any order with other additions."""
    return a + b


#: The reductions of ``combined``, by their names in scatter ops.
REDUCTIONS = {None: 0, "add": 1, "multiply": 2, "amax": 3, "amin": 4}


@inlined
def combined(a, b, how):
    """``a`` and ``b`` reduced by one of ``REDUCTIONS``; the first NaN stays."""
    if how == 1:
        return a + b
    if how == 2:
        return a * b
    if how == 3:
        return b if b > a or b != b else a
    return b if b < a or b != b else a


@inlined
def bits(x):
    """The bits of a float32 as an int32."""
    return np.float32(x).view(np.int32)


@inlined
def number(i):
    """The float32 with the bits of an int32."""
    return np.int32(i).view(np.float32)


@inlined
def order(x):
    """An int32 that sorts as ``x`` does, as integer maxima are vectorised; its own inverse on bits."""
    i = bits(x)
    return i ^ ((i >> _LAST) & _NOT_SIGN)


@inlined
def unorder(i):
    """The float32 whose ``order`` is ``i``."""
    return number(i ^ ((i >> _LAST) & _NOT_SIGN))


@inlined
def _power(r):
    p = (((((_E6 * r + _E5) * r + _E4) * r + _E3) * r + _E2) * r + _E1) * (r * r)
    return p + r + _ONE


@inlined
def exp(x):
    """``e ** x``, down to denormal numbers and up to infinity."""
    y = _HIGH if x > _HIGH else x
    y = _LOW if y < _LOW else y
    z = y * _LOG2E + _ROUND
    n = z - _ROUND
    r = y - n * _LN2_HIGH - n * _LN2_LOW
    exponent = bits(z) - bits(_ROUND)
    half = exponent >> np.int32(1)
    p = _power(r) * number((half + _BIAS) << _SHIFT)
    return p * number((exponent - half + _BIAS) << _SHIFT)


@inlined
def exp_below(x):
    """``e ** x`` for ``x <= 0``; 0 where the result would be denormal."""
    y = _LOWEST if x < _LOWEST else x
    z = y * _LOG2E + _ROUND
    n = z - _ROUND
    r = y - n * _LN2_HIGH - n * _LN2_LOW
    return _power(r) * number((bits(z) - bits(_ROUND) + _BIAS) << _SHIFT)


@inlined
def sigmoid(x):
    """``1 / (1 + exp(-x))``."""
    return _ONE / (_ONE + exp(-x))


@inlined
def normal_tail(x, e):
    """``erfc(|x| / sqrt(2)) / 2``, given ``e = exp(-x^2 / 2)``."""
    t = _ONE / (abs(x) * _STEP + _ONE)
    p = ((((((_N8 * t + _N7) * t + _N6) * t + _N5) * t + _N4) * t + _N3) * t + _N2) * t + _N1
    return p * t * e
