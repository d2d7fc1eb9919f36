"""Elementwise methods beyond arithmetic: ``float_power``, ``frac``, ``xlogy``, ``erfinv``, angles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.core.methods.forms import inplace_form
from tenon.core.op import table as f
from tenon.core.value import Value
from tenon.dtypes import get_default_dtype
from tenon.errors import ArgumentError, DTypeError


class Numeric:
    """Rarer functions of each element."""

    __slots__ = ()
    raw: Any

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # what the other mixins bring

    def float_power(self, exponent: Any) -> Any:
        """``self ** exponent``, computed in float64 (complex128 for complex numbers)."""
        parts = (self, exponent)
        wide = np.complex128 if any(_is_complex(p) for p in parts) else np.float64
        base, power = (f.cast(p, dtype=np.dtype(wide)) if isinstance(p, Value) else p for p in parts)
        return f.pow(base, power)

    def hardshrink(self, lambd: float = 0.5) -> Any:
        """The elements, but 0 where their magnitude is up to ``lambd``."""
        return f.hardshrink(self, bound=float(lambd))

    def clamp_min(self, min: Any) -> Any:
        """Elements not below ``min``."""
        return f.clamp(self, min, None)

    def clamp_max(self, max: Any) -> Any:
        """Elements not above ``max``."""
        return f.clamp(self, None, max)

    def frac(self) -> Any:
        """What is left after removing the integer part."""
        return f.sub(self, f.trunc(self))

    def xlogy(self, other: Any) -> Any:
        """``self * log(other)``, and 0 where ``self`` is 0."""
        return f.xlogy(self, other)

    def copysign(self, other: Any) -> Any:
        """Magnitude of ``self`` with the sign of ``other``."""
        return f.copysign(self, other)

    def heaviside(self, values: Any) -> Any:
        """0 below zero, 1 above, ``values`` at zero."""
        return f.heaviside(self, values)

    def nextafter(self, other: Any) -> Any:
        """The next number in the direction of ``other``."""
        return f.nextafter(self, other)

    def gcd(self, other: Any) -> Any:
        """Greatest common divisor."""
        return f.gcd(self, other)

    def lcm(self, other: Any) -> Any:
        """Least common multiple."""
        return f.lcm(self, other)

    def sinc(self) -> Any:
        """``sin(pi x) / (pi x)``."""
        return f.sinc(self)

    def erfc(self) -> Any:
        """``1 - erf(x)``."""
        return f.erfc(self)

    def erfinv(self) -> Any:
        """The inverse of ``erf``."""
        return f.erfinv(self)

    def lgamma(self) -> Any:
        """``log(|gamma(x)|)``."""
        return f.lgamma(self)

    def digamma(self) -> Any:
        """Derivative of ``lgamma``."""
        return f.digamma(self)

    def polygamma(self, n: int) -> Any:
        """Derivative number ``n`` of ``digamma``; positive elements only for ``n > 0``."""
        if n < 0:
            raise ArgumentError(f"polygamma(n, x) does not support negative n, got {n}")
        return f.digamma(self) if n == 0 else f.polygamma(self, order=n)

    def positive(self) -> Any:
        """The tensor itself; an error for booleans, as in torch."""
        if self.raw.dtype.kind == "b":
            raise DTypeError("The `+` operator, on a bool tensor is not supported.")
        return self

    def ldexp(self, other: Any) -> Any:
        """``self * 2 ** other``."""
        return f.mul(self, f.pow(2.0, other))

    def logaddexp2(self, other: Any) -> Any:
        """``log2(2 ** self + 2 ** other)`` without overflow."""
        scale = math.log(2)
        return f.div(f.logaddexp(f.mul(self, scale), f.mul(other, scale)), scale)

    def deg2rad(self) -> Any:
        """Degrees as radians."""
        return f.mul(self, math.pi / 180)

    def rad2deg(self) -> Any:
        """Radians as degrees."""
        return f.mul(self, 180 / math.pi)

    def logit(self, eps: float | None = None) -> Any:
        """``log(x / (1 - x))``, with ``x`` limited to ``[eps, 1 - eps]`` if given."""
        x = self if eps is None else f.clamp(self, eps, 1 - eps)
        return f.log(f.div(x, f.sub(1, x)))

    def conj(self) -> Any:
        """Complex conjugate; a real tensor is itself."""
        return f.conj(self) if self.raw.dtype.kind == "c" else self

    def angle(self) -> Any:
        """Argument of complex numbers; 0 or pi of real ones."""
        if self.raw.dtype.kind == "c":
            return f.atan2(f.imag(self), f.real(self))
        kind = self.dtype if self.raw.dtype.kind in "fV" else get_default_dtype()
        return f.where(f.isnan(self), float("nan"), f.mul(f.cast(f.lt(self, 0), dtype=kind.numpy), math.pi))

    def isposinf(self) -> Any:
        """Is positive infinity."""
        return f.eq(self, float("inf"))

    def isneginf(self) -> Any:
        """Is negative infinity."""
        return f.eq(self, float("-inf"))

    def isreal(self) -> Any:
        """Has no imaginary part."""
        return f.eq(f.imag(self), 0) if self.raw.dtype.kind == "c" else f.eq(self, self).logical_or(True)


def _is_complex(value: Any) -> bool:
    return isinstance(value, complex) or (isinstance(value, Value) and bool(value.raw.dtype.kind == "c"))


def _attach() -> None:
    for name in (
        "float_power", "clamp_min", "clamp_max", "frac", "xlogy", "copysign", "heaviside", "nextafter", "gcd",
        "lcm", "sinc", "erfc", "erfinv", "deg2rad", "rad2deg", "logit", "lgamma", "digamma", "ldexp",
    ):  # fmt: skip
        setattr(Numeric, f"{name}_", inplace_form(name))


_attach()
