"""Logarithm of the gamma function and its derivatives, by recurrence up to 8 and an asymptotic series from
there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.core.aval import Aval
from tenon.ops.elementwise import FloatUnary

_SHIFT = 8
#: Bernoulli numbers B_2, B_4, ... of the asymptotic series.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _wide(x: Any) -> Any:
    """float64: the recurrence loses digits in narrower types."""
    return x.astype(np.float64)


def _series(z: Any, powers: Any) -> Any:
    """Sum of ``B_2n * factor / z ** power`` over ``powers(n) = (factor, power)``."""
    return sum(b * powers(n)[0] / z ** powers(n)[1] for n, b in enumerate(_BERNOULLI, 1))


def _shifted(xp: Any, x: Any) -> tuple[Any, list[Any]]:
    """``x`` moved up past ``_SHIFT`` in steps of one, and the values on the way (infinite where no step was
    taken)."""
    steps = []
    for _ in range(_SHIFT):
        low = x < _SHIFT
        steps.append(xp.where(low, x, xp.inf))
        x = xp.where(low, x + 1, x)
    return x, steps


class Lgamma(FloatUnary):
    """``log(|gamma(x)|)``."""

    saves = ("x",)

    def forward(self, xp, x, *, out=None):
        """Stirling's series; reflection left of 1/2; infinite at 0 and the negative integers."""
        w = _wide(x)
        left = w < 0.5
        z, steps = _shifted(xp, xp.where(left, 1 - w, w))
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

    def forward(self, xp, x, *, out=None):
        """The derivative of Stirling's series; reflection left of 1/2."""
        w = _wide(x)
        left = w < 0.5
        z, steps = _shifted(xp, xp.where(left, 1 - w, w))
        body = xp.log(z) - 0.5 / z - _series(z, lambda n: (1 / (2 * n), 2 * n))
        for step in steps:
            body = body - 1 / step
        with np.errstate(divide="ignore", invalid="ignore"):
            part = w - xp.floor(w)
            mirrored = body - math.pi / xp.tan(math.pi * part)
        poles = xp.where(w == 0, xp.copysign(xp.inf, -w), xp.nan)
        whole = (w <= 0) & (w == xp.floor(w))
        return xp.where(whole, poles, xp.where(left, mirrored, body)).astype(x.dtype, copy=False)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.polygamma(x, order=1))


class Polygamma(FloatUnary):
    """Derivative number ``order`` of ``digamma``, for positive ``x``; number 1 for negative ``x`` too."""

    saves = ("x",)

    def infer(self, x, *, order):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x, *, order, out=None):
        """The series differentiated ``order`` times; left of 0 reflected (order 1) or NaN."""
        w = _wide(x)
        z, steps = _shifted(xp, xp.where(w > 0, w, 1 - w if order == 1 else 1.0))
        body = math.factorial(order - 1) / z**order + math.factorial(order) / (2 * z ** (order + 1))
        body = body + _series(
            z, lambda n: (math.factorial(2 * n + order - 1) / math.factorial(2 * n), 2 * n + order)
        )
        for step in steps:
            body = body + math.factorial(order) / step ** (order + 1)
        sign = 1 if order % 2 else -1
        left: Any = xp.nan
        if order == 1:
            with np.errstate(divide="ignore"):
                left = (math.pi / xp.sin(math.pi * (w - xp.floor(w)))) ** 2 - body
        return xp.where(w > 0, sign * body, left).astype(x.dtype, copy=False)

    def vjp_x(self, f, g, out, x, *, order):
        return f.mul(g, f.polygamma(x, order=order + 1))


lgamma, digamma, polygamma = Lgamma(), Digamma(), Polygamma()
