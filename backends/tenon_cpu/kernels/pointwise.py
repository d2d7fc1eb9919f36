"""Elementwise ops that NumPy has a quicker way for than the obvious one. Times are of 262,144 float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import clamp as _clamp
from tenon.ops import leaky_relu as _leaky_relu
from tenon.ops import logical_not as _logical_not
from tenon.ops import pow as _pow

_REAL = frozenset("fd")
_NUMBERS = frozenset((bool, int, float))
_SMALL = 1 << 10


def pow(x: Any, y: Any, *, out: Any = None) -> Any:
    """Small exponents as products and roots, as torch has them (cubes: 46 us against 16 ms)."""
    if getattr(x, "dtype", None) is not None and x.dtype.char in _REAL and not getattr(y, "ndim", 0):
        exponent = float(y) if y.__class__ in _NUMBERS or getattr(y, "dtype", x.dtype).kind in "iuf" else None
        if exponent == 2:
            return np.square(x, out=out)
        if exponent == 3 and x.ndim:
            return np.multiply(np.multiply(x, x), x, out=out)
        if exponent == 0.5:
            return np.sqrt(x, out=out)
        if exponent == -1:
            return np.reciprocal(x, out=out)
        if exponent == -0.5:
            made = np.sqrt(x, out=out)
            return np.reciprocal(made, out=made if made.ndim else None)
    return _pow.forward(np, x, y) if out is None else _pow.forward(np, x, y, out=out)


def clamp(x: Any, min: Any, max: Any, *, out: Any = None) -> Any:
    """By numbers: one walk (32 against 100 us for each bound); a missing bound is infinite."""
    low, high = -np.inf if min is None else min, np.inf if max is None else max
    if (
        low.__class__ in _NUMBERS
        and high.__class__ in _NUMBERS
        and x.__class__ is np.ndarray
        and x.dtype.char in _REAL
        and x.size >= _SMALL
        and low == low
        and high == high
    ):
        return np.clip(x, x.dtype.type(low), x.dtype.type(high), out=out)
    return _clamp.forward(np, x, min, max, out=out)


def logical_not(x: Any, *, out: Any = None) -> Any:
    """Comparison with 0 (17 against 166 us)."""
    if x.dtype.char in _REAL:
        return np.equal(x, 0, out=out)
    return _logical_not.forward(np, x, out=out)


def leaky_relu(f: Any, x: Any, *, slope: float = 0.01) -> Any:
    """The larger of both where the slope is less steep than 1 (59 against 166 us)."""
    if x.dtype.char not in _REAL or x.size < _SMALL or not 0 < slope <= 1:
        return _leaky_relu.decompose(f, x, slope=slope)
    made = np.multiply(x, x.dtype.type(slope))
    return np.maximum(made, x, out=made)


KERNELS: dict[str, Kernel] = {"pow": pow, "clamp": clamp, "logical_not": logical_not}
COMPOSITES: dict[str, Kernel] = {"leaky_relu": leaky_relu}

__all__ = ["COMPOSITES", "KERNELS"]
