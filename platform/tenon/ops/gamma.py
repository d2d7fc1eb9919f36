"""The gamma function's logarithm, its derivatives, and the incomplete gamma functions.

The logarithm and its first derivatives use recurrence up to 8 and an asymptotic series from there; higher
derivatives are multiples of the Hurwitz zeta function.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tenon.engine.aval import Aval, refuse_kinds, shape_of
from tenon.engine.types import Array, ArrayNamespace
from tenon.errors import UnsupportedError
from tenon.ops.elementwise import Binary, FloatUnary

_SHIFT = 8
#: Bernoulli numbers B_2, B_4, ... of the asymptotic series.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _wide(name: str, x: Array) -> Array:
    """Return ``x`` in float64: the recurrence loses digits in narrower types. Complex numbers are refused."""
    refuse_kinds(name, "c", x)
    return x.astype(np.float64)


def _series(z: Array, powers: Callable[[int], tuple[float, int]]) -> Array:
    """Return the sum of ``B_2n * factor / z ** power`` over ``powers(n) = (factor, power)``."""
    return sum(b * powers(n)[0] / z ** powers(n)[1] for n, b in enumerate(_BERNOULLI, 1))


def _shifted(xp: ArrayNamespace, x: Array) -> tuple[Array, list[Array]]:
    """Increase ``x`` to at least ``_SHIFT`` in steps of one; also return the values before each step,
    infinite where no step was taken."""
    steps = []
    for _ in range(_SHIFT):
        low = x < _SHIFT
        steps.append(xp.where(low, x, xp.inf))
        x = xp.where(low, x + 1, x)
    return x, steps


def _reflected(xp: ArrayNamespace, name: str, x: Array) -> tuple[Array, Array, Array, list[Array]]:
    """Return ``x`` in float64, the mask of ``x < 1/2``, and ``_shifted`` of ``1 - x`` there, of ``x``
    elsewhere."""
    wide = _wide(name, x)
    left = wide < 0.5
    return (wide, left, *_shifted(xp, xp.where(left, 1 - wide, wide)))


class Lgamma(FloatUnary):
    """``log(|gamma(x)|)``."""

    saves = ("x",)
    inplace_functions = False
    foreach = True

    def forward(self, xp, x, *, out=None):
        """Stirling's series; reflection below 1/2; infinite at 0 and the negative integers."""
        w, left, z, steps = _reflected(xp, self.name, x)
        body = (z - 0.5) * xp.log(z) - z + 0.5 * math.log(2 * math.pi)
        body = body + _series(z, lambda n: (1 / (2 * n * (2 * n - 1)), 2 * n - 1))
        for step in steps:
            body = body - xp.where(step == xp.inf, 0, xp.log(xp.where(step == xp.inf, 1, step)))
        with np.errstate(divide="ignore"):
            sine = xp.abs(xp.sin(math.pi * (w - xp.floor(w))))
            mirrored = math.log(math.pi) - xp.log(sine) - body
        return xp.where(xp.isinf(w), xp.inf, xp.where(left, mirrored, body)).astype(x.dtype, copy=False)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.digamma(x))


class Digamma(FloatUnary):
    """Derivative of ``lgamma``."""

    saves = ("x",)
    inplace_functions = False

    def forward(self, xp, x, *, out=None):
        """The derivative of Stirling's series; reflection below 1/2."""
        w, left, z, steps = _reflected(xp, self.name, x)
        body = xp.log(z) - 0.5 / z - _series(z, lambda n: (1 / (2 * n), 2 * n))
        for step in steps:
            body = body - 1 / step
        with np.errstate(divide="ignore", invalid="ignore"):
            part = w - xp.floor(w)
            mirrored = body - math.pi / xp.tan(math.pi * part)
        poles = xp.where(w == 0, xp.copysign(xp.inf, -w), xp.nan)
        is_pole = (w <= 0) & (w == xp.floor(w))
        return xp.where(is_pole, poles, xp.where(left, mirrored, body)).astype(x.dtype, copy=False)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.polygamma(x, order=1))


#: Of this number, the factorial still fits in a float64.
_LARGEST_FACTORIAL = 170


class Polygamma(FloatUnary):
    """The derivative of ``digamma`` of order ``order``."""

    saves = ("x",)
    public = False

    def infer(self, x, *, order):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x, *, order, out=None):
        """A multiple of the zeta function; order 1 is reflected below 1/2, and infinite at its poles."""
        w = _wide(self.name, x)
        if order > 1:
            factorial = math.factorial(order) if order <= _LARGEST_FACTORIAL else math.inf
            with np.errstate(invalid="ignore"):
                result = _zeta(xp, xp.full_like(w, order + 1), w) * (factorial if order % 2 else -factorial)
            return result.astype(x.dtype, copy=False)
        left = w < 0.5
        body = _zeta(xp, xp.full_like(w, 2.0), xp.where(left, 1 - w, w))
        with np.errstate(divide="ignore", invalid="ignore"):
            mirrored = (math.pi / xp.sin(math.pi * (w - xp.floor(w)))) ** 2 - body
        return xp.where(left, mirrored, body).astype(x.dtype, copy=False)

    def vjp_x(self, f, g, out, x, *, order):
        return f.mul(g, f.polygamma(x, order=order + 1))


def _zeta(xp: ArrayNamespace, s: Array, q: Array) -> Array:
    """Return the sum of ``(q + k) ** -s`` over ``k >= 0`` for float64 arrays.

    Ten terms are added, then the Euler-Maclaurin formula is applied. For ``q < 0``, where ``s`` must be an
    integer, the sum is composed of sums that start at positive numbers.
    """
    with np.errstate(all="ignore"):
        is_integer, part = q == xp.floor(q), q - xp.floor(q)
        sign = xp.where(xp.remainder(s, 2) == 0, 1.0, -1.0)
        left = _tail_sum(xp, s, part) + sign * (_tail_sum(xp, s, 1 - part) - _tail_sum(xp, s, 1 - q))
        result = xp.where(q > 0, _tail_sum(xp, s, q), xp.where(s == xp.floor(s), left, xp.nan))
        result = xp.where((q <= 0) & is_integer, xp.inf, result)
        result = xp.where(s == 1, xp.inf, xp.where(s < 1, xp.nan, result))
        return xp.where(xp.isnan(s) | xp.isnan(q), xp.nan, result)


def _tail_sum(xp: ArrayNamespace, s: Array, q: Array) -> Array:
    """Return the sum of ``(q + k) ** -s`` over ``k >= 0`` for ``q > 0``."""
    total = sum((q + k) ** -s for k in range(10))
    a = q + 10
    total = total + a ** (1 - s) / (s - 1) + 0.5 * a**-s
    factor = s * a ** (-s - 1)
    for n, b in enumerate(_BERNOULLI, 1):
        total = total + b * factor / math.factorial(2 * n)
        factor = factor * (s + 2 * n - 1) * (s + 2 * n) / (a * a)
    return total


class Zeta(Binary):
    """Hurwitz zeta function: the sum of ``(y + k) ** -x`` over ``k >= 0``."""

    grad_name = "SpecialZetaBackward0"
    grad_overloads = {(True, False): "SpecialZetaBackward1"}
    promotion = "float"
    saves = ("x", "y")
    public = False

    def forward(self, xp, x, y, *, out=None):
        """Compute in float64, round once."""
        kind = xp.result_type(x, y)
        refuse_kinds(self.name, "c", x, y)
        result = _zeta(xp, xp.asarray(x, np.float64), xp.asarray(y, np.float64))
        return result.astype(kind, copy=False)

    def vjp_x(self, f, g, out, x, y):
        raise UnsupportedError(
            "zeta: the derivative with respect to the exponent is not implemented. Detach it."
        )

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.neg(f.mul(g, f.mul(x, f.zeta(f.add(x, 1.0), y)))), shape=shape_of(y))


class Igamma(Binary):
    """Regularised lower incomplete gamma function of order ``x``: the integral of ``gamma(x)`` up to
    ``y``, divided by ``gamma(x)``."""

    promotion = "float"
    saves = ("x", "y")
    upper = False
    second_is_tensor = True

    def forward(self, xp, x, y, *, out=None):
        """By its power series up to ``y = x + 1``, by a continued fraction from there."""
        kind = xp.result_type(x, y)
        refuse_kinds(self.name, "c", x, y)
        a, b = xp.broadcast_arrays(xp.asarray(x, np.float64), xp.asarray(y, np.float64))
        return _incomplete(xp, a, b, self.upper).astype(kind, copy=False)

    def vjp_x(self, f, g, out, x, y):
        raise UnsupportedError(
            f"{self.name}: the derivative with respect to the order is not implemented. Detach it."
        )

    # y ** (x - 1) exp(-y) / gamma(x)
    def vjp_y(self, f, g, out, x, y):
        slope = f.exp(f.sub(f.sub(f.mul(f.sub(x, 1.0), f.log(y)), y), f.lgamma(x)))
        return f.sum_to(f.mul(g, f.neg(slope) if self.upper else slope), shape=shape_of(y))


class Igammac(Igamma):
    """Regularised upper incomplete gamma function: ``1 - igamma``."""

    upper = True


def _incomplete(xp: ArrayNamespace, a: Array, x: Array, upper: bool) -> Array:
    """Return the upper or lower regularised incomplete gamma function of order ``a`` at ``x``."""
    regular = (a > 0) & (x > 0) & xp.isfinite(a) & xp.isfinite(x)
    p, z = xp.where(regular, a, 1.0), xp.where(regular, x, 1.0)
    with np.errstate(all="ignore"):
        front = xp.exp(p * xp.log(z) - z - lgamma.forward(xp, p))
        below = z < p + 1
        part = front * _apply_where(xp, _series_of_gamma, below, p, z)
        part = part + front * _apply_where(xp, _fraction_of_gamma, ~below, p, z)
        part = xp.where(below == upper, 1 - part, part)
    # at the edges: the lower function is 1 at x = inf and 0 at x = 0; for order 0 it is 1 at any x > 0
    small, full = (1.0, 0.0) if upper else (0.0, 1.0)
    edge = xp.where((x == 0) & (a > 0), small, xp.where((a == 0) & (x > 0), full, xp.nan))
    edge = xp.where(xp.isinf(x) & (x > 0) & (a >= 0) & xp.isfinite(a), full, edge)
    edge = xp.where(xp.isinf(a) & (a > 0) & (x >= 0) & xp.isfinite(x), small, edge)
    return xp.where(regular, part, edge)


#: Elements per loop, which runs until the last of them has converged.
_BLOCK = 2048


def _apply_where(
    xp: ArrayNamespace,
    function: Callable[[ArrayNamespace, Array, Array], Array],
    mask: Array,
    a: Array,
    x: Array,
) -> Array:
    """Return ``function(xp, a, x)`` where ``mask`` is set, and 0 elsewhere."""
    result = xp.zeros(mask.shape)
    a, x = a[mask], x[mask]
    blocks = [function(xp, a[i : i + _BLOCK], x[i : i + _BLOCK]) for i in range(0, a.size, _BLOCK)]
    if blocks:
        result[mask] = xp.concatenate(blocks)
    return result


def _series_of_gamma(xp: ArrayNamespace, a: Array, x: Array) -> Array:
    """Return the sum of ``x ** k / (a (a + 1) ... (a + k))`` over ``k >= 0``."""
    term = total = 1 / a
    k = 0
    while k < 10000 and bool(xp.any(term > total * 1e-17)):
        k += 1
        term = term * x / (a + k)
        total = total + term
    return total


def _fraction_of_gamma(xp: ArrayNamespace, a: Array, x: Array) -> Array:
    """Return Legendre's continued fraction ``1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - ...))``."""
    b = x + 1 - a
    c, d = xp.full_like(b, 1e300), 1 / b
    result = d
    for k in range(1, 10000):
        step = -k * (k - a)
        b = b + 2
        d = 1 / (step * d + b)
        c = b + step / c
        change = c * d
        result = result * change
        if not bool(
            xp.any(xp.abs(change - 1) > 5e-16)
        ):  # rounding alone gives up to 2 units in the last place
            break
    return result


lgamma, digamma, polygamma = Lgamma(), Digamma(), Polygamma()
zeta, igamma, igammac = Zeta(), Igamma(), Igammac()
