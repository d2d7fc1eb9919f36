"""``x * a + b`` rounded once, on arrays.

PyTorch's kernels are compiled with fused multiply-add, so scaling a random number to its interval rounds
once. NumPy has no such operation. For float32 the product is exact in float64 and only the sum may round
twice; for float64 the sum is taken in error-free pieces and rounded to odd before the last addition (Boldo
and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

import math

import numpy as np

_SPLIT = 134217729.0  # 2**27 + 1, Dekker's constant
_TIE = np.int64(1 << 28)
_BELOW_FLOAT32 = np.int64((1 << 29) - 1)


def fma32(x: np.ndarray, a: np.float32, b: np.float32, unit: int | None = None) -> np.ndarray:
    """Return ``x * a + b`` of float32 ``x``, rounded once to float32.

    With ``unit``, every x has to be a multiple of 2**unit below 1, for which the float64 sum is often exact.
    """
    total = x.astype(np.float64)
    total *= float(a)
    if b == 0 or (unit is not None and _sum_is_exact(float(a), float(b), unit)):
        total += float(b)
        return total.astype(np.float32)
    product = total
    total = product + float(b)
    # Rounding twice matters only where the float64 sum is inexact and lies half-way between two float32.
    ties = (total.view(np.int64) & _BELOW_FLOAT32) == _TIE
    if ties.any():
        total[ties] = _to_odd(*_two_sum(product[ties], float(b)))
    return total.astype(np.float32)


def _sum_is_exact(a: float, b: float, unit: int) -> bool:
    """Whether 53 bits hold every sum of a multiple of ``a * 2**unit`` below ``a`` and of ``b``."""
    lowest = min(math.frexp(a)[1] + unit, math.frexp(b)[1]) - 24
    return abs(a) + abs(b) < math.ldexp(1.0, lowest + 53)


def fma64(x: np.ndarray, a: float, b: float) -> np.ndarray:
    """Return ``x * a + b`` of float64 ``x``, rounded once; exact products need no emulation."""
    if a == 1.0:
        return x + b
    if b == 0.0:
        return x * a + b
    high, low = _two_product(x, a)
    middle, rest = _two_sum(low, b)
    total, error = _two_sum(high, middle)
    return total + _to_odd(*_two_sum(rest, error))


def _two_sum(x: np.ndarray, y: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    total = x + y
    virtual = total - x
    return total, (x - (total - virtual)) + (y - virtual)


def _two_product(x: np.ndarray, a: float) -> tuple[np.ndarray, np.ndarray]:
    product = x * a
    x_high = x * _SPLIT
    x_high -= x_high - x
    x_low = x - x_high
    a_high = a * _SPLIT - (a * _SPLIT - a)
    a_low = a - a_high
    return product, ((x_high * a_high - product) + x_high * a_low + x_low * a_high) + x_low * a_low


def _to_odd(total: np.ndarray, error: np.ndarray) -> np.ndarray:
    even = (total.view(np.int64) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & even, np.nextafter(total, toward), total)
