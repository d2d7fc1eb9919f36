"""Angles: trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

from tenon.ops.dtype_queries import is_complex
from tenon.ops.elementwise import FloatUnary


class Sin(FloatUnary):
    """Sine."""

    ufunc = "sin"
    saves = ("x",)
    expression = "sin(a)"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.cos(x)))


class Cos(FloatUnary):
    """Cosine."""

    ufunc = "cos"
    saves = ("x",)
    expression = "cos(a)"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.neg(f.sin(x))))


class Tan(FloatUnary):
    """Tangent."""

    ufunc = "tan"
    saves = ("out",)
    expression = "tan(a)"
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.add(f.mul(out, out), 1.0)))


class Asin(FloatUnary):
    """Inverse sine."""

    ufunc = "arcsin"
    saves = ("x",)
    expression = "asin(a)"
    aliases = ("arcsin",)
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.rsqrt(f.sub(1.0, f.mul(x, x)))))


class Acos(FloatUnary):
    """Inverse cosine."""

    ufunc = "arccos"
    saves = ("x",)
    expression = "acos(a)"
    aliases = ("arccos",)
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.neg(f.rsqrt(f.sub(1.0, f.mul(x, x))))))


class Atan(FloatUnary):
    """Inverse tangent."""

    ufunc = "arctan"
    saves = ("x",)
    expression = "atan(a)"
    aliases = ("arctan",)
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.reciprocal(f.add(f.mul(x, x), 1.0))))


class Sinh(FloatUnary):
    """Hyperbolic sine."""

    ufunc = "sinh"
    saves = ("x",)
    expression = "sinh(a)"
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.cosh(x)))


class Cosh(FloatUnary):
    """Hyperbolic cosine."""

    ufunc = "cosh"
    saves = ("x",)
    expression = "cosh(a)"
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.sinh(x)))


class Tanh(FloatUnary):
    """Hyperbolic tangent."""

    ufunc = "tanh"
    saves = ("out",)
    expression = "tanh(a)"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.sub(1.0, f.mul(out, out))))


class Asinh(FloatUnary):
    """Inverse hyperbolic sine."""

    ufunc = "arcsinh"
    saves = ("x",)
    expression = "asinh(a)"
    aliases = ("arcsinh",)
    inplace_overload = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.rsqrt(f.add(f.mul(x, x), 1.0))))


class Acosh(FloatUnary):
    """Inverse hyperbolic cosine."""

    ufunc = "arccosh"
    saves = ("x",)
    expression = "acosh(a)"
    aliases = ("arccosh",)
    inplace_overload = True

    # two factors for complex numbers, as their branch cuts are those of acosh
    def vjp_x(self, f, g, out, x):
        if is_complex(x):
            slope = f.mul(f.rsqrt(f.add(x, 1.0)), f.rsqrt(f.sub(x, 1.0)))
        else:
            slope = f.rsqrt(f.sub(f.mul(x, x), 1.0))
        return f.mul(g, f.conj(slope))


class Atanh(FloatUnary):
    """Inverse hyperbolic tangent."""

    ufunc = "arctanh"
    saves = ("x",)
    expression = "atanh(a)"
    aliases = ("arctanh",)
    inplace_overload = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.reciprocal(f.sub(1.0, f.mul(x, x)))))


sin, cos, tan, asin, acos, atan = Sin(), Cos(), Tan(), Asin(), Acos(), Atan()
sinh, cosh, tanh, asinh, acosh, atanh = Sinh(), Cosh(), Tanh(), Asinh(), Acosh(), Atanh()
