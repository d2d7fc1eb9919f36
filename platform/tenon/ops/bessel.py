"""Modified Bessel functions of the first kind.

Below 30 the power series is summed, whose terms are all positive, so nothing cancels; from 30 on the
asymptotic series is exact to float64. ``i0e`` and ``i1e`` are divided by ``exp(|x|)``, which overflows at
710.
"""

from __future__ import annotations

import math

import numpy as np

from tenon.engine.types import Array, ArrayNamespace
from tenon.ops.elementwise import FloatUnary

_BORDER = 30.0
_TERMS = 80


def _scaled(xp: ArrayNamespace, size: Array, order: int) -> Array:
    """Return ``exp(-size) I_order(size)`` for non-negative float64 numbers."""
    near = xp.minimum(size, _BORDER)
    quarter = near * near / 4
    term = total = (near / 2) ** order
    for k in range(1, _TERMS):
        term = term * quarter / (k * (k + order))
        total = total + term
    far = xp.maximum(size, _BORDER)
    part = tail = xp.ones_like(far)
    for k in range(1, 20):
        part = part * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k * far)
        tail = tail + part
    with np.errstate(invalid="ignore"):
        high = xp.where(xp.isinf(far), 0, tail / xp.sqrt(2 * math.pi * far))
    return xp.where(size < _BORDER, total * xp.exp(-near), high)


class _Bessel(FloatUnary):
    """Base of the ops: one order, scaled by ``exp(-|x|)`` or not."""

    saves = ("x", "out")
    order = 0
    scaled = False
    public = False

    def forward(self, xp, x, *, out=None):
        """Compute in float64, round once."""
        w = x.astype(np.float64)
        size = xp.abs(w)
        result = _scaled(xp, size, self.order)
        if not self.scaled:
            with np.errstate(over="ignore", invalid="ignore"):
                result = xp.where(xp.isinf(size), xp.nan, result * xp.exp(xp.minimum(size, 700.0)))
                result = result * xp.exp(xp.maximum(size, 700.0) - 700.0)
        result = xp.where(xp.isnan(w), xp.nan, result)
        if self.order:
            result = result * xp.sign(w)
        with np.errstate(over="ignore"):
            return result.astype(x.dtype, copy=False)


class I0(_Bessel):
    """Modified Bessel function of order 0."""

    public = True
    inplace_form = "method"

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.i1(x))


class I0e(_Bessel):
    """``exp(-|x|) i0(x)``."""

    grad_name = "SpecialI0EBackward0"
    scaled = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.sub(f.i1e(x), f.mul(f.sign(x), out)))


class I1(_Bessel):
    """Modified Bessel function of order 1."""

    grad_name = "SpecialI1Backward0"
    order = 1

    # I1' = I0 - I1 / x, which is 1/2 at 0
    def vjp_x(self, f, g, out, x):
        zero = f.eq(x, 0)
        slope = f.sub(f.i0(x), f.div(out, f.where(zero, 1.0, x)))
        return f.mul(g, f.where(zero, 0.5, slope))


class I1e(_Bessel):
    """``exp(-|x|) i1(x)``."""

    grad_name = "SpecialI1EBackward0"
    order = 1
    scaled = True

    def vjp_x(self, f, g, out, x):
        zero = f.eq(x, 0)
        inner = f.add(f.sign(x), f.div(1.0, f.where(zero, 1.0, x)))
        return f.mul(g, f.where(zero, 0.5, f.sub(f.i0e(x), f.mul(out, inner))))


i0, i0e, i1, i1e = I0(), I0e(), I1(), I1e()
