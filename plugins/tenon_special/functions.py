"""Bessel and Airy functions, and tails of the normal distribution, as functions of ``tenon.special``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import tenon
from tenon import ops, special
from tenon.extend import titled
from tenon_special import cylinder
from tenon_special.arguments import floating, write_result
from tenon_special.erfcx import erfcx as _erfcx

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.ops.elementwise import FloatUnary

modified_bessel_i0, modified_bessel_i1 = special.i0, special.i1


def _elementwise(op: FloatUnary) -> Callable[..., Tensor]:
    """Return the public function of an elementwise op."""

    def function(input: Tensor, *, out: Tensor | None = None) -> Tensor:
        return write_result(out, op(floating(op.name, input)))

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.__doc__
    return function


airy_ai = _elementwise(cylinder.airy_ai)
bessel_j0, bessel_j1 = _elementwise(cylinder.bessel_j0), _elementwise(cylinder.bessel_j1)
bessel_y0, bessel_y1 = _elementwise(cylinder.bessel_y0), _elementwise(cylinder.bessel_y1)
modified_bessel_k0 = _elementwise(cylinder.modified_bessel_k0)
modified_bessel_k1 = _elementwise(cylinder.modified_bessel_k1)
scaled_modified_bessel_k0 = _elementwise(cylinder.scaled_modified_bessel_k0)
scaled_modified_bessel_k1 = _elementwise(cylinder.scaled_modified_bessel_k1)


def erfcx(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``exp(x ** 2) erfc(x)``, without overflow for large ``x``."""
    return write_result(out, _erfcx(floating("erfcx", input)))


@titled("SpecialLogNdtr0")
def log_ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the logarithm of ``ndtr``, accurate also far below 0."""
    x = floating("log_ndtr", input)
    low = x < -1.0
    t = ops.mul(x, math.sqrt(0.5))
    below = ops.where(low, t, -1.0)
    tail = ops.sub(ops.log(ops.mul(_erfcx(ops.neg(below)), 0.5)), ops.mul(below, below))
    above = ops.where(low, 0.0, t)
    return write_result(out, ops.where(low, tail, ops.log1p(ops.mul(ops.erfc(above), -0.5))))


def zeta(input: Tensor | float, other: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Return Hurwitz' zeta function, the sum of ``(other + k) ** -input``; one argument may be a number."""
    if not isinstance(input, tenon.Tensor) and not isinstance(other, tenon.Tensor):
        raise TypeError("special.zeta(): one of the arguments must be a Tensor")
    if input is None or other is None:
        raise TypeError(f"special.zeta() takes tensors and numbers, got {input} and {other}")
    return write_result(out, ops.zeta(input, other))


def spherical_bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``sin(x) / x``, 1 at 0."""
    x = floating("spherical_bessel_j0", input)
    return write_result(out, ops.where(ops.isinf(x), 0.0, ops.mul(x, 1 / math.pi).sinc()))
