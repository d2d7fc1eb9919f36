"""Smooth elementwise functions: exponentials, logarithms, roots, sigmoid."""

from __future__ import annotations

from tenon.compat.saved_readers import always
from tenon.ops.elementwise import Binary, FloatUnary, Unary


class Exp(FloatUnary):
    """``e ** x``."""

    ufunc = "exp"
    saves = ("out",)
    expression = "exp(a)"
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(out))


class Exp2(FloatUnary):
    """``2 ** x``."""

    ufunc = "exp2"
    saves = ("out",)
    expression = "exp2(a)"

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.mul(out, 0.6931471805599453)))


class Expm1(FloatUnary):
    """``e ** x - 1``, accurate near 0."""

    ufunc = "expm1"
    saves = ("out",)
    expression = "expm1(a)"
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.add(out, 1.0)))


class Log(FloatUnary):
    """Natural logarithm."""

    ufunc = "log"
    saves = ("x",)
    expression = "log(a)"
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.div(g, f.conj(x))


class Log2(FloatUnary):
    """Logarithm to base 2."""

    ufunc = "log2"
    saves = ("x",)
    expression = "log2(a)"
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.div(g, f.conj(f.mul(x, 0.6931471805599453)))


class Log10(FloatUnary):
    """Logarithm to base 10."""

    ufunc = "log10"
    saves = ("x",)
    expression = "log10(a)"
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.div(g, f.conj(f.mul(x, 2.302585092994046)))


class Log1p(FloatUnary):
    """``log(1 + x)``, accurate near 0."""

    ufunc = "log1p"
    grad_name = "Log1PBackward0"
    saves = ("x",)
    expression = "log1p(a)"
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.div(g, f.conj(f.add(x, 1.0)))


class Sqrt(FloatUnary):
    """Square root."""

    ufunc = "sqrt"
    saves = ("out",)
    expression = "sqrt(a)"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.div(g, f.conj(f.mul(out, 2.0)))


class Rsqrt(FloatUnary):
    """``1 / sqrt(x)``."""

    saves = ("out",)
    expression = "1 / sqrt(a)"
    fills_out = True
    autocast_cuda = "float32"
    foreach = True

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
    expression = "a * a"
    saved_names = {"exponent": always(2)}

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.mul(x, 2.0)))


class Reciprocal(FloatUnary):
    """``1 / x``."""

    ufunc = "reciprocal"
    saves = ("out",)
    expression = "1 / a"
    autocast_cuda = "float32"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.neg(f.mul(g, f.conj(f.mul(out, out))))


class Logaddexp(Binary):
    """``log(exp(x) + exp(y))`` without overflow."""

    fills_out = True
    saves = ("x", "y")
    promotion = "float"
    expression = "maximum(a, b) + log1p(exp(-(0 if a == b else abs(a - b))))"
    computes_in_float32 = True
    second_is_tensor = True

    def forward(self, xp, x, y, *, out=None):
        """The namespace's ``logaddexp``; for complex numbers, relative to that of the larger real part."""
        if xp.result_type(x, y).kind != "c":
            return xp.logaddexp(x, y, out=out)
        swap = xp.real(x) < xp.real(y)
        high, low = xp.where(swap, y, x), xp.where(swap, x, y)
        return xp.add(high, xp.log1p(xp.exp(low - high)), out=out)

    # exp(x - out), where inf - inf would be NaN
    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, _share(f, x, y)), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, _share(f, y, x)), shape=y.shape)


def _share(f, x, y):
    """``exp(x) / (exp(x) + exp(y))``, conjugated."""
    return f.conj(f.reciprocal(f.add(f.exp(f.sub(y, x)), 1.0)))


class Sigmoid(FloatUnary):
    """``1 / (1 + exp(-x))``."""

    saves = ("out",)
    expression = "sigmoid(a)"
    fills_out = True
    foreach = True

    def forward(self, xp, x, *, out=None):
        """By exp, which keeps all digits of small results; of complex numbers by tanh, which does not
        overflow."""
        if x.dtype.itemsize == 2:  # 16-bit floats in float32: their tails would lose digits
            return self.forward(xp, x.astype("float32")).astype(x.dtype)
        if x.dtype.kind == "c":
            half = xp.tanh(xp.multiply(x, 0.5, out=out), out=out)
            return xp.add(xp.multiply(half, 0.5, out=out), 0.5, out=out)
        result = xp.exp(xp.negative(x, out=out), out=out)
        return xp.reciprocal(xp.add(result, 1, out=out), out=out)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.conj(f.mul(out, f.sub(1.0, out))))


exp, exp2, expm1, log, log2, log10, log1p = Exp(), Exp2(), Expm1(), Log(), Log2(), Log10(), Log1p()
sqrt, rsqrt, square, reciprocal, sigmoid = Sqrt(), Rsqrt(), Square(), Reciprocal(), Sigmoid()
logaddexp = Logaddexp()
