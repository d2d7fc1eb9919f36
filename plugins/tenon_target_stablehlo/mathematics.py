"""Mathematical functions of floats that StableHLO 1.0 lacks; ``FUNCTIONS`` has them by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.ops.special import ERF_FAR32, ERF_FAR64, ERF_NEAR32, ERF_NEAR64
from tenon_target_stablehlo.builder import Value

if TYPE_CHECKING:
    from tenon_target_stablehlo.expressions import Translation


def _polynomial(t: Translation, coefficients: Sequence[float], x: Value) -> Value:
    """Evaluate by Horner's rule, lowest coefficient first."""
    result = t.numeric(coefficients[-1])
    for c in coefficients[-2::-1]:
        result = t.binary("add", t.binary("multiply", result, x), c)
    return result


def _clamp(t: Translation, x: Value, low: float, high: float) -> Value:
    return t.binary("minimum", t.binary("maximum", x, low), high)


def _near(t: Translation, x: Value) -> Value:
    """Return erf of -1 to 1."""
    x = _clamp(t, x, -1.0, 1.0)
    series = _polynomial(t, ERF_NEAR64 if t.dtype.itemsize == 8 else ERF_NEAR32, t.binary("multiply", x, x))
    return t.binary("multiply", x, series)


def _far(t: Translation, size: Value) -> Value:
    """Return erfc of 1 and more; exp(-size^2) in two factors, as rounding the square would cost digits."""
    double = t.dtype.itemsize == 8
    size = _clamp(t, size, 1.0, 30.0 if double else 11.0)
    k, steps = (3.75, 65536.0) if double else (2.0, 256.0)
    place = t.binary("divide", t.binary("subtract", size, k), t.binary("add", size, k))
    tail = _polynomial(t, ERF_FAR64 if double else ERF_FAR32, place)
    head = t.binary("multiply", t.unary("floor", t.binary("multiply", size, steps)), 1.0 / steps)
    first = t.unary("exponential", t.unary("negate", t.binary("multiply", head, head)))
    rest = t.binary("multiply", t.binary("subtract", head, size), t.binary("add", head, size))
    product = t.binary("multiply", t.binary("multiply", tail, first), t.unary("exponential", rest))
    return t.binary("divide", product, t.binary("add", size, 1.0))


def _erf(t: Translation, x: Value) -> Value:
    size = t.unary("abs", x)
    far = _copysign(t, t.binary("subtract", 1.0, _far(t, size)), x)
    return t.where(t.test("LT", size, 1.0), _near(t, x), far)


def _erfc(t: Translation, x: Value) -> Value:
    size, far = t.unary("abs", x), _far(t, t.unary("abs", x))
    beyond = t.where(t.test("LT", x, 0.0), t.binary("subtract", 2.0, far), far)
    near = t.binary("subtract", 1.0, _near(t, x))
    return t.where(t.test("LT", size, 1.0), near, beyond)


def _isnan(t: Translation, x: Value) -> Value:
    return t.test("NE", x, x)


def _isinf(t: Translation, x: Value) -> Value:
    return t.test("EQ", t.unary("abs", x), math.inf)


def _isfinite(t: Translation, x: Value) -> Value:
    return t.b.call("is_finite", x, dtype=np.dtype(np.bool_), shape=x.shape)


def _signbit(t: Translation, x: Value) -> Value:
    bits = np.dtype(f"int{8 * x.dtype.itemsize}")
    stored = t.b.call("bitcast_convert", x, dtype=bits, shape=x.shape)
    return t.b.compare("LT", stored, t.b.full(0, bits, x.shape))


def _copysign(t: Translation, x: Value, y: Value) -> Value:
    size = t.unary("abs", x)
    return t.where(_signbit(t, y), t.unary("negate", size), size)


def _fmax(t: Translation, x: Value, y: Value) -> Value:
    return _skipping_nan(t, "maximum", x, y)


def _fmin(t: Translation, x: Value, y: Value) -> Value:
    return _skipping_nan(t, "minimum", x, y)


def _skipping_nan(t: Translation, operation: str, x: Value, y: Value) -> Value:
    both = t.binary(operation, x, y)
    if t.dtype.kind not in "fV":
        return both
    return t.where(_isnan(t, x), y, t.where(_isnan(t, y), x, both))


def _hypot(t: Translation, x: Value, y: Value) -> Value:
    """Scale by the larger one, so that no square overflows; infinite if one of both is."""
    one, other = t.unary("abs", x), t.unary("abs", y)
    large, small = t.binary("maximum", one, other), t.binary("minimum", one, other)
    ratio = t.binary("divide", small, large)
    length = t.unary("sqrt", t.binary("add", t.binary("multiply", ratio, ratio), 1.0))
    result = t.where(t.test("EQ", large, 0.0), large, t.binary("multiply", large, length))
    infinite = t.b.binary("or", _isinf(t, x), _isinf(t, y))
    return t.where(infinite, math.inf, result)


def _atan2(t: Translation, x: Value, y: Value) -> Value:
    return t.binary("atan2", x, y)


def _cosine_of(t: Translation, x: Value) -> Value:
    """Return the square root of ``1 - x^2``."""
    product = t.binary("multiply", t.binary("subtract", 1.0, x), t.binary("add", 1.0, x))
    return t.unary("sqrt", product)


def _asin(t: Translation, x: Value) -> Value:
    return t.binary("atan2", x, _cosine_of(t, x))


def _acos(t: Translation, x: Value) -> Value:
    return t.binary("atan2", _cosine_of(t, x), x)


def _atan(t: Translation, x: Value) -> Value:
    return t.binary("atan2", x, 1.0)


def _tan(t: Translation, x: Value) -> Value:
    return t.binary("divide", t.unary("sine", x), t.unary("cosine", x))


def _half_exponential(t: Translation, size: Value) -> Value:
    """Return ``exp(size) / 2``, which overflows no earlier than the result."""
    return t.unary("exponential", t.binary("subtract", size, math.log(2)))


def _sinh(t: Translation, x: Value) -> Value:
    size = t.unary("abs", x)
    less = t.unary("exponential_minus_one", t.binary("minimum", size, 20.0))
    near = t.binary("add", less, t.binary("divide", less, t.binary("add", less, 1.0)))
    far = _half_exponential(t, size)
    result = t.where(t.test("LT", size, 20.0), t.binary("multiply", near, 0.5), far)
    return _copysign(t, result, x)


def _cosh(t: Translation, x: Value) -> Value:
    size = t.unary("abs", x)
    small = t.unary("exponential", t.binary("subtract", -math.log(2), size))
    return t.binary("add", _half_exponential(t, size), small)


def _asinh(t: Translation, x: Value) -> Value:
    """Sum by ``log1p`` near 0; ``log(2 |x|)`` where the square would overflow."""
    size = t.unary("abs", x)
    bounded = t.binary("minimum", size, 1e8)
    root = t.unary("sqrt", t.binary("add", t.binary("multiply", bounded, bounded), 1.0))
    square = t.binary("multiply", bounded, bounded)
    share = t.binary("divide", square, t.binary("add", root, 1.0))
    near = t.unary("log_plus_one", t.binary("add", bounded, share))
    far = t.binary("add", t.unary("log", size), math.log(2))
    return _copysign(t, t.where(t.test("LT", size, 1e8), near, far), x)


def _acosh(t: Translation, x: Value) -> Value:
    bounded = t.binary("minimum", x, 1e8)
    less = t.binary("subtract", bounded, 1.0)
    root = t.unary("sqrt", t.binary("multiply", less, t.binary("add", bounded, 1.0)))
    near = t.unary("log_plus_one", t.binary("add", less, root))
    far = t.binary("add", t.unary("log", x), math.log(2))
    return t.where(t.test("GT", x, 1e8), far, near)


def _atanh(t: Translation, x: Value) -> Value:
    difference = t.binary(
        "subtract", t.unary("log_plus_one", x), t.unary("log_plus_one", t.unary("negate", x))
    )
    return t.binary("multiply", difference, 0.5)


def _exp2(t: Translation, x: Value) -> Value:
    return t.binary("power", 2.0, x)


def _log2(t: Translation, x: Value) -> Value:
    return t.binary("multiply", t.unary("log", x), 1 / math.log(2))


def _log10(t: Translation, x: Value) -> Value:
    return t.binary("multiply", t.unary("log", x), 1 / math.log(10))


FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "acos": _acos, "acosh": _acosh, "asin": _asin, "asinh": _asinh, "atan": _atan, "atan2": _atan2,
    "atanh": _atanh, "copysign": _copysign, "cosh": _cosh, "erf": _erf, "erfc": _erfc, "exp2": _exp2,
    "fmax": _fmax, "fmin": _fmin, "hypot": _hypot, "isfinite": _isfinite, "isinf": _isinf, "isnan": _isnan,
    "log10": _log10, "log2": _log2, "signbit": _signbit, "sinh": _sinh, "tan": _tan,
}  # fmt: skip
