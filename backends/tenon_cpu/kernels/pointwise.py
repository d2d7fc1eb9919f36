"""Elementwise ops by faster NumPy functions than the obvious ones. Times are for 262,144 float32 elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_any: Callable[..., np.bool_] = np.logical_or.reduce
_NUMBERS = frozenset((bool, int, float))


def pow(x: np.ndarray, y: np.ndarray | float, *, out: np.ndarray | None = None) -> np.ndarray:
    """Powers 2, 3, 0.5, -1 and -0.5 as products and roots, as in PyTorch (cubes: 46 us against 16 ms)."""
    if x.dtype.kind == "V":  # bfloat16
        return _root(x, float(y), out) if not isinstance(y, np.ndarray) else NotImplemented
    if isinstance(y, np.ndarray):
        if 0.5 in y:
            return _no_root(x, y, out)
        if y.ndim or y == -0.5:
            return NotImplemented
    exponent = float(y) if y.__class__ in _NUMBERS or getattr(y, "dtype", x.dtype).kind in "iuf" else None
    if exponent == 2:
        return np.square(x, out=out)
    if exponent == 3 and x.ndim:
        return np.multiply(np.multiply(x, x), x, out=out)
    if exponent == -1:
        return np.reciprocal(x, out=out)
    return _root(x, exponent, out)


def _no_root(x: np.ndarray, y: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """Powers of tensors: PyTorch takes the root for the number 0.5 only, which differs at -0 and -inf, and
    NumPy takes one for an exponent that it repeats."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    result = np.power(
        np.broadcast_to(x, shape or (1,)), np.array(np.broadcast_to(y, shape or (1,)), order="C")
    )
    if out is None:
        return result.reshape(shape)
    out[...] = result.reshape(shape)
    return out


def _root(x: np.ndarray, exponent: float | None, out: np.ndarray | None) -> np.ndarray:
    if exponent == 0.5:
        return np.sqrt(x, out=out)
    if exponent == -0.5:
        root = np.sqrt(x, out=out)
        return np.reciprocal(root, out=root if root.ndim else None)
    return NotImplemented


def clamp(
    x: np.ndarray, min: float | None, max: float | None, *, out: np.ndarray | None = None
) -> np.ndarray:
    """Clip to two numbers in one pass (32 against 100 us for each bound); a missing bound is infinite."""
    low, high = -np.inf if min is None else min, np.inf if max is None else max
    return np.clip(x, x.dtype.type(low), x.dtype.type(high), out=out)


def fmax(x: np.ndarray, y: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
    """The larger element, ignoring NaN, of equal elements the first, as in PyTorch."""
    return _first_of_zeros(np.fmax, x, y, out)


def fmin(x: np.ndarray, y: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
    """The smaller element, ignoring NaN, of equal elements the first, as in PyTorch."""
    return _first_of_zeros(np.fmin, x, y, out)


def _first_of_zeros(extreme: np.ufunc, x: np.ndarray, y: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """``extreme(x, y)``. Of zeros of different signs NumPy returns either, by their place in memory."""
    result: np.ndarray = extreme(x, y)
    zero = np.equal(result, 0)
    if _any(zero, axis=None):
        result = np.where(np.logical_and(zero, np.equal(x, y)), x, result)
    if out is None:
        return result
    out[...] = result
    return out


def logical_not(x: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
    """Compare with 0 (17 against 166 us)."""
    return np.equal(x, 0, out=out)


def leaky_relu(x: np.ndarray, *, slope: float = 0.01) -> np.ndarray:
    """The maximum of ``x`` and ``slope * x``, for slopes of at most 1 (59 against 166 us)."""
    scaled = np.multiply(x, x.dtype.type(slope))
    return np.maximum(scaled, x, out=scaled)


__all__ = ["clamp", "fmax", "fmin", "leaky_relu", "logical_not", "pow"]
