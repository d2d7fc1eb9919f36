"""Bessel functions of the first, second and third kind of orders 0 and 1, and Airy's function.

First and second kind: power series up to 5, Miller's backward recurrence with Neumann's series up to 25,
Hankel's expansion above. Third kind: the series up to 2, above it the integral of ``exp(-x (cosh t - 1))
cosh(nu t)`` as a sum over equal steps of ``s = sqrt(2 x) sinh(t / 2)``, in which the integrand is a Gaussian
bell. Airy's function is computed from order 1/3 above 2, and by its expansion below -7.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tenon import ops
from tenon.extend import Array, ArrayNamespace, Operand, OpNamespace
from tenon.ops.elementwise import FloatUnary

_GAMMA = 0.57721566490153286
_ORDERS = 70
_STEP, _STEPS = 0.25, 26


def _series(xp: ArrayNamespace, x: Array, order: int) -> tuple[Array, Array]:
    """Return ``J`` and ``Y`` for ``0 < x <= 5``, by power series."""
    quarter = -x * x / 4
    term = (x / 2) ** order
    first, second = term, term * (1.0 if order else 0.0)
    harmonic = 0.0
    for k in range(1, 30):
        term = term * quarter / (k * (k + order))
        harmonic += 1 / k
        first = first + term
        second = second + term * (2 * harmonic + (1 / (k + 1) if order else 0.0))
    log = xp.log(x / 2) + _GAMMA
    return first, (2 * log * first - second - (2 / x if order else 0.0)) / math.pi


def _recurrence(xp: ArrayNamespace, x: Array, order: int) -> tuple[Array, Array]:
    """Return ``J`` and ``Y`` for ``5 <= x <= 25``, by backward recurrence."""
    upper, current = xp.zeros_like(x), xp.full_like(x, 1e-250)
    values = [current]
    for k in range(_ORDERS, 0, -1):
        upper, current = current, 2 * k / x * current - upper
        values.append(current)
    values.reverse()
    norm = values[0] + 2 * functools.reduce(xp.add, values[2::2])
    j = [v / norm for v in values]
    log = xp.log(x / 2) + _GAMMA
    if not order:
        rest = sum((-1) ** k * j[2 * k] / k for k in range(1, _ORDERS // 2))
        return j[0], (2 * log * j[0] - 4 * rest) / math.pi
    rest = sum((-1) ** k * (2 * k + 1) * j[2 * k + 1] / (k * (k + 1)) for k in range(1, _ORDERS // 2 - 1))
    return j[1], (2 * (log - 1) * j[1] - 2 / x * j[0] - 2 * rest) / math.pi


def _hankel(xp: ArrayNamespace, x: Array, order: int) -> tuple[Array, Array]:
    """Return ``J`` and ``Y`` for ``x >= 25``, by Hankel's expansion."""
    p, q, factor = xp.ones_like(x), xp.zeros_like(x), xp.ones_like(x)
    for k in range(1, 26):
        factor = factor * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
        if k % 2:
            q = q + (-1) ** (k // 2) * factor
        else:
            p = p + (-1) ** (k // 2) * factor
    sine, cosine = xp.sin(x), xp.cos(x)
    along, across = (sine - cosine, -sine - cosine) if order else (sine + cosine, sine - cosine)
    size = 1 / xp.sqrt(math.pi * x)
    return (p * along - q * across) * size, (p * across + q * along) * size


def _bessel(xp: ArrayNamespace, x: Array, order: int, second: bool) -> Array:
    """Return the Bessel function of the first or second kind."""
    size = xp.abs(x)
    near = _series(xp, xp.clip(size, 1e-300, 5.0), order)[second]
    middle = _recurrence(xp, xp.clip(size, 5.0, 25.0), order)[second]
    far = _hankel(xp, xp.maximum(size, 25.0), order)[second]
    result = xp.where(size <= 5, near, xp.where(size <= 25, middle, far))
    result = xp.where(xp.isinf(size), 0.0, result)
    if second:
        return xp.where(x > 0, result, xp.where(x == 0, -xp.inf, xp.nan))
    result = xp.where(x < 0, -result, result) if order else result
    result = xp.where(x == 0, x if order else 1.0, result)
    return xp.where(xp.isnan(x), xp.nan, result)


def _scaled_third_kind(xp: ArrayNamespace, x: Array, order: float) -> Array:
    """Return ``exp(x) K_order(x)`` for ``x`` above about 2."""
    root = xp.sqrt(2 * x)
    total = 0.5
    for k in range(1, _STEPS):
        s = k * _STEP
        total = total + math.exp(-s * s) * xp.cosh(2 * order * xp.arcsinh(s / root)) / xp.sqrt(
            1 + s * s / (2 * x)
        )
    return total * _STEP * 2 / root


def _third_kind(xp: ArrayNamespace, x: Array, order: int, scaled: bool) -> Array:
    """Return the Bessel function of the third kind, times ``exp(x)`` if ``scaled``."""
    near, far = xp.clip(x, 1e-300, 2.0), xp.maximum(x, 2.0)
    low, quarter = ops.i0.forward(xp, near), near * near / 4
    term, rest, harmonic = xp.ones_like(near), xp.zeros_like(near), 0.0
    for k in range(1, 20):
        term, harmonic = term * quarter / (k * k), harmonic + 1 / k
        rest = rest + term * harmonic
    result = rest - (xp.log(near / 2) + _GAMMA) * low
    if order:  # I0 K1 + I1 K0 = 1 / x
        result = (1 / near - ops.i1.forward(xp, near) * result) / low
    high = xp.where(xp.isinf(far), 0.0, _scaled_third_kind(xp, far, order))
    result = xp.where(
        x <= 2, result * xp.exp(near) if scaled else result, high if scaled else high * xp.exp(-far)
    )
    return xp.where(x > 0, result, xp.where(x == 0, xp.inf, xp.nan))


def _airy(xp: ArrayNamespace, x: Array) -> Array:
    """Return Airy's function Ai: by its power series between -7 and 2."""
    near = xp.clip(x, -7.0, 2.0)
    cube = near**3
    f, g = first, second = xp.ones_like(near), near
    for k in range(1, 60):
        first, second = first * cube / (3 * k * (3 * k - 1)), second * cube / (3 * k * (3 * k + 1))
        f, g = f + first, g + second
    middle = 0.355028053887817239 * f - 0.258819403792806798 * g
    high = xp.clip(x, 2.0, 200.0)
    zeta = 2 / 3 * high * xp.sqrt(high)
    right = xp.sqrt(high / 3) / math.pi * _scaled_third_kind(xp, zeta, 1 / 3) * xp.exp(-zeta)
    low = -xp.minimum(x, -7.0)
    zeta = 2 / 3 * low * xp.sqrt(low)
    even, odd, factor = xp.ones_like(low), xp.zeros_like(low), xp.ones_like(low)
    for k in range(1, 20):
        factor = factor * (6 * k - 5) * (6 * k - 1) / (72 * k * zeta)
        if k % 2:
            odd = odd + (-1) ** (k // 2) * factor
        else:
            even = even + (-1) ** (k // 2) * factor
    phase = zeta - math.pi / 4
    left = (xp.cos(phase) * even + xp.sin(phase) * odd) / xp.sqrt(math.pi * xp.sqrt(low))
    result = xp.where(x > 2, right, xp.where(x < -7, left, middle))
    return xp.where(xp.isnan(x), xp.nan, xp.where(xp.isinf(x), 0.0, result))


class _Cylinder(FloatUnary):
    """Base class of ops that are computed in float64 and rounded once."""

    saves = ("x", "out")
    public = False

    def compute(self, xp: ArrayNamespace, x: Array) -> Array:
        """Return the function of a float64 array."""
        raise NotImplementedError

    def forward(self, xp: ArrayNamespace, x: Array, *, out: Array | None = None) -> Array:
        with np.errstate(all="ignore"):
            return self.compute(xp, x.astype(np.float64)).astype(x.dtype, copy=False)


class BesselJ0(_Cylinder):
    """Bessel function of the first kind, order 0."""

    def compute(self, xp: ArrayNamespace, x: Array) -> Array:
        return _bessel(xp, x, 0, second=False)

    def vjp_x(self, f: OpNamespace, g: Operand, out: Operand, x: Operand) -> Operand:
        return f.mul(g, f.neg(f.bessel_j1(x)))


class BesselJ1(_Cylinder):
    """Bessel function of the first kind, order 1."""

    def compute(self, xp: ArrayNamespace, x: Array) -> Array:
        return _bessel(xp, x, 1, second=False)

    # J1' = J0 - J1 / x, which is 1/2 at 0
    def vjp_x(self, f: OpNamespace, g: Operand, out: Operand, x: Operand) -> Operand:
        zero = f.eq(x, 0)
        derivative = f.sub(f.bessel_j0(x), f.div(out, f.where(zero, 1.0, x)))
        return f.mul(g, f.where(zero, 0.5, derivative))


class BesselY0(_Cylinder):
    """Bessel function of the second kind, order 0."""

    def compute(self, xp: ArrayNamespace, x: Array) -> Array:
        return _bessel(xp, x, 0, second=True)

    def vjp_x(self, f: OpNamespace, g: Operand, out: Operand, x: Operand) -> Operand:
        return f.mul(g, f.neg(f.bessel_y1(x)))


class BesselY1(_Cylinder):
    """Bessel function of the second kind, order 1."""

    def compute(self, xp: ArrayNamespace, x: Array) -> Array:
        return _bessel(xp, x, 1, second=True)

    def vjp_x(self, f: OpNamespace, g: Operand, out: Operand, x: Operand) -> Operand:
        return f.mul(g, f.sub(f.bessel_y0(x), f.div(out, x)))


class ModifiedBesselK0(_Cylinder):
    """Bessel function of the third kind, order 0."""

    def compute(self, xp: ArrayNamespace, x: Array) -> Array:
        return _third_kind(xp, x, 0, scaled=False)

    def vjp_x(self, f: OpNamespace, g: Operand, out: Operand, x: Operand) -> Operand:
        return f.mul(g, f.neg(f.modified_bessel_k1(x)))


class ModifiedBesselK1(_Cylinder):
    """Bessel function of the third kind, order 1."""

    def compute(self, xp: ArrayNamespace, x: Array) -> Array:
        return _third_kind(xp, x, 1, scaled=False)

    def vjp_x(self, f: OpNamespace, g: Operand, out: Operand, x: Operand) -> Operand:
        return f.mul(g, f.neg(f.add(f.modified_bessel_k0(x), f.div(out, x))))


class ScaledModifiedBesselK0(_Cylinder):
    """``exp(x) modified_bessel_k0(x)``."""

    def compute(self, xp: ArrayNamespace, x: Array) -> Array:
        return _third_kind(xp, x, 0, scaled=True)

    def vjp_x(self, f: OpNamespace, g: Operand, out: Operand, x: Operand) -> Operand:
        return f.mul(g, f.sub(out, f.scaled_modified_bessel_k1(x)))


class ScaledModifiedBesselK1(_Cylinder):
    """``exp(x) modified_bessel_k1(x)``."""

    def compute(self, xp: ArrayNamespace, x: Array) -> Array:
        return _third_kind(xp, x, 1, scaled=True)

    def vjp_x(self, f: OpNamespace, g: Operand, out: Operand, x: Operand) -> Operand:
        return f.mul(g, f.sub(f.sub(out, f.scaled_modified_bessel_k0(x)), f.div(out, x)))


class AiryAi(_Cylinder):
    """Airy's function Ai, without a gradient."""

    def compute(self, xp: ArrayNamespace, x: Array) -> Array:
        return _airy(xp, x)


bessel_j0, bessel_j1 = BesselJ0(), BesselJ1()
bessel_y0, bessel_y1 = BesselY0(), BesselY1()
modified_bessel_k0, modified_bessel_k1 = ModifiedBesselK0(), ModifiedBesselK1()
scaled_modified_bessel_k0, scaled_modified_bessel_k1 = ScaledModifiedBesselK0(), ScaledModifiedBesselK1()
airy_ai = AiryAi()
