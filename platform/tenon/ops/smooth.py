"""Smooth elementwise functions: exponentials, logarithms, roots, sigmoid, trigonometry."""

from __future__ import annotations

from typing import Any

from tenon.core.op import Primitive
from tenon.ops.elementwise import Binary, FloatUnary, Unary
from tenon.ops.kinds import is_complex


class Exp(FloatUnary):
    """``e ** x``."""

    ufunc = "exp"
    saves = ("out",)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(out))


class Exp2(FloatUnary):
    """``2 ** x``."""

    ufunc = "exp2"
    saves = ("out",)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.mul(out, 0.6931471805599453)))


class Expm1(FloatUnary):
    """``e ** x - 1``, accurate near 0."""

    ufunc = "expm1"
    saves = ("out",)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.add(out, 1.0)))


class Log(FloatUnary):
    """Natural logarithm."""

    ufunc = "log"
    saves = ("x",)

    def vjp_x(self, f, g, out, x):
        return f.div(g, f.conj(x))


class Log2(FloatUnary):
    """Logarithm to base 2."""

    ufunc = "log2"
    saves = ("x",)

    def vjp_x(self, f, g, out, x):
        return f.div(g, f.conj(f.mul(x, 0.6931471805599453)))


class Log10(FloatUnary):
    """Logarithm to base 10."""

    ufunc = "log10"
    saves = ("x",)

    def vjp_x(self, f, g, out, x):
        return f.div(g, f.conj(f.mul(x, 2.302585092994046)))


class Log1p(FloatUnary):
    """``log(1 + x)``, accurate near 0."""

    ufunc = "log1p"
    grad_name = "Log1PBackward0"
    saves = ("x",)

    def vjp_x(self, f, g, out, x):
        return f.div(g, f.conj(f.add(x, 1.0)))


class Sqrt(FloatUnary):
    """Square root."""

    ufunc = "sqrt"
    saves = ("out",)

    def vjp_x(self, f, g, out, x):
        return f.div(g, f.conj(f.mul(out, 2.0)))


class Rsqrt(FloatUnary):
    """``1 / sqrt(x)``."""

    saves = ("out",)

    def forward(self, xp, x, *, out=None):
        """Reciprocal of the root."""
        return xp.reciprocal(xp.sqrt(x), out=out)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.mul(-0.5, f.mul(out, f.mul(out, out)))))


class Square(Unary):
    """``x * x``."""

    ufunc = "square"
    promotion = "number"
    saves = ("x",)
    grad_name = "PowBackward0"

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.mul(x, 2.0)))


class Reciprocal(FloatUnary):
    """``1 / x``."""

    ufunc = "reciprocal"
    saves = ("out",)

    def vjp_x(self, f, g, out, x):
        return f.neg(f.mul(g, f.conj(f.mul(out, out))))


class Logaddexp(Binary):
    """``log(exp(x) + exp(y))`` without overflow."""

    ufunc = "logaddexp"
    saves = ("x", "y", "out")
    promotion = "float"

    def forward(self, xp, x, y, *, out=None):
        """The namespace's own; of complex numbers that of the larger real part comes out of the logarithm."""
        if xp.result_type(x, y).kind != "c":
            return xp.logaddexp(x, y, out=out)
        swap = xp.real(x) < xp.real(y)
        high, low = xp.where(swap, y, x), xp.where(swap, x, y)
        return high + xp.log1p(xp.exp(low - high))

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, f.conj(f.exp(f.sub(x, out)))), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, f.conj(f.exp(f.sub(y, out)))), shape=y.shape)


class Sigmoid(FloatUnary):
    """``1 / (1 + exp(-x))``."""

    saves = ("out",)

    def forward(self, xp, x, *, out=None):
        """Through tanh, which neither overflows nor loses the tails' sign."""
        if x.dtype.itemsize == 2:  # narrow floats through float32: their tails would lose digits
            return self.forward(xp, x.astype("float32")).astype(x.dtype)
        half = xp.multiply(x, 0.5, out=out)
        half = xp.tanh(half, out=out)
        half = xp.multiply(half, 0.5, out=out)
        return xp.add(half, 0.5, out=out)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.mul(out, f.sub(1.0, out))))


def _acosh_slope(f: Any, x: Any) -> Any:
    if is_complex(x):  # in two factors, whose branch cuts are those of acosh
        return f.mul(f.rsqrt(f.add(x, 1.0)), f.rsqrt(f.sub(x, 1.0)))
    return f.rsqrt(f.sub(f.mul(x, x), 1.0))


def _smooth(name: str, ufunc: str, slope: Any, doc: str, saves: tuple[str, ...] = ("x",)) -> Primitive:
    """One more float ufunc, whose derivative is ``slope(f, x, out)``."""

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(slope(f, x, out)))

    body = {
        "__doc__": doc,
        "ufunc": ufunc,
        "saves": saves,
        "vjp_x": vjp_x,
        "name": name,
        "__module__": __name__,
    }
    made: type[Primitive] = type(name.capitalize(), (FloatUnary,), body)
    return made()


sin = _smooth("sin", "sin", lambda f, x, out: f.cos(x), "Sine.")
cos = _smooth("cos", "cos", lambda f, x, out: f.neg(f.sin(x)), "Cosine.")
tan = _smooth("tan", "tan", lambda f, x, out: f.add(f.mul(out, out), 1.0), "Tangent.", ("out",))
asin = _smooth("asin", "arcsin", lambda f, x, out: f.rsqrt(f.sub(1.0, f.mul(x, x))), "Inverse sine.")
acos = _smooth("acos", "arccos", lambda f, x, out: f.neg(f.rsqrt(f.sub(1.0, f.mul(x, x)))), "Inverse cosine.")
atan = _smooth("atan", "arctan", lambda f, x, out: f.reciprocal(f.add(f.mul(x, x), 1.0)), "Inverse tangent.")
sinh = _smooth("sinh", "sinh", lambda f, x, out: f.cosh(x), "Hyperbolic sine.")
cosh = _smooth("cosh", "cosh", lambda f, x, out: f.sinh(x), "Hyperbolic cosine.")
tanh = _smooth("tanh", "tanh", lambda f, x, out: f.sub(1.0, f.mul(out, out)), "Hyperbolic tangent.", ("out",))
asinh = _smooth(
    "asinh", "arcsinh", lambda f, x, out: f.rsqrt(f.add(f.mul(x, x), 1.0)), "Inverse hyperbolic sine."
)
acosh = _smooth("acosh", "arccosh", lambda f, x, out: _acosh_slope(f, x), "Inverse hyperbolic cosine.")
atanh = _smooth(
    "atanh", "arctanh", lambda f, x, out: f.reciprocal(f.sub(1.0, f.mul(x, x))), "Inverse hyperbolic tangent."
)
exp, exp2, expm1, log, log2, log10, log1p = Exp(), Exp2(), Expm1(), Log(), Log2(), Log10(), Log1p()
sqrt, rsqrt, square, reciprocal, sigmoid = Sqrt(), Rsqrt(), Square(), Reciprocal(), Sigmoid()
logaddexp = Logaddexp()
