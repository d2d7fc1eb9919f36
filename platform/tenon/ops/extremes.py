"""Elementwise maxima and minima: ``maximum``, ``minimum`` and the forms that ignore NaN."""

from __future__ import annotations

from tenon.engine.types import Operand, OpNamespace
from tenon.ops.elementwise import Binary


class Maximum(Binary):
    """The larger element, NaN if either is; ties share the gradient."""

    ufunc = "maximum"
    saves = ("x", "y")
    expression = "maximum(a, b)"
    second_is_tensor = True
    orders = True

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, _share(f, f.lt(x, y), f.eq(x, y), g)), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, _share(f, f.lt(y, x), f.eq(x, y), g)), shape=y.shape)


class Minimum(Binary):
    """The smaller element, NaN if either is; ties share the gradient."""

    ufunc = "minimum"
    saves = ("x", "y")
    expression = "minimum(a, b)"
    second_is_tensor = True
    orders = True

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, _share(f, f.gt(x, y), f.eq(x, y), g)), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, _share(f, f.gt(y, x), f.eq(x, y), g)), shape=y.shape)


class Fmax(Binary):
    """The larger element, ignoring a NaN; of equal elements the first gets the gradient."""

    ufunc = "fmax"
    saves = ("x", "y", "out")
    expression = "fmax(a, b)"
    second_is_tensor = True
    orders = True

    def vjp_x(self, f, g, out, x, y):
        first = f.logical_or(f.ge(x, y), f.ne(out, y))
        return f.sum_to(f.mul(g, f.cast(first, dtype=g.dtype)), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        second = f.logical_not(f.logical_or(f.ge(x, y), f.ne(out, y)))
        return f.sum_to(f.mul(g, f.cast(second, dtype=g.dtype)), shape=y.shape)


class Fmin(Binary):
    """The smaller element, ignoring a NaN; of equal elements the first gets the gradient."""

    ufunc = "fmin"
    saves = ("x", "y", "out")
    expression = "fmin(a, b)"
    second_is_tensor = True
    orders = True

    def vjp_x(self, f, g, out, x, y):
        first = f.logical_or(f.le(x, y), f.ne(out, y))
        return f.sum_to(f.mul(g, f.cast(first, dtype=g.dtype)), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        second = f.logical_not(f.logical_or(f.le(x, y), f.ne(out, y)))
        return f.sum_to(f.mul(g, f.cast(second, dtype=g.dtype)), shape=y.shape)


def _share(f: OpNamespace, loses: Operand, ties: Operand, g: Operand) -> Operand:
    """Return 0 where ``loses``, 0.5 where ``ties``, else 1 (also at NaN), in the dtype of ``g``."""
    return f.sub(1.0, f.add(f.cast(loses, dtype=g.dtype), f.mul(f.cast(ties, dtype=g.dtype), 0.5)))


maximum, minimum, fmax, fmin = Maximum(), Minimum(), Fmax(), Fmin()
