"""Elementwise primitives: one ufunc and one derivative per class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tenon.engine.aval import Aval, shape_of
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Operand, OpNamespace
from tenon.kernels.shapes import broadcast_shapes
from tenon.ops.dtype_queries import is_complex, real_dtype

_POWERS = {2: "a * a", 0.5: "sqrt(a)", -1: "1 / a", 1: "a", 3: "a * a * a", -0.5: "1 / sqrt(a)"}


def _dtype(x: Operand) -> object:
    """The dtype of an array, or of a value of a cluster."""
    return getattr(getattr(x, "aval", x), "dtype", None)


class Unary(Primitive):
    """Base of the elementwise ops of one input."""

    kind = Kind.ELEMENTWISE
    public = True
    inplace_functions: ClassVar[bool | tuple[str, ...]] = True

    def infer(self, x: Aval) -> Aval:
        """The input's own aval."""
        return Aval(x.shape, x.dtype)


class FloatUnary(Unary):
    """Base of the unary ops whose integer inputs become floats."""

    promotion = "float"


class Binary(Primitive):
    """Base of the elementwise ops of two inputs, which broadcast and take their common dtype."""

    kind = Kind.ELEMENTWISE
    inputs = ("x", "y")
    promotion = "same"
    public = True

    def infer(self, x: Aval, y: Aval) -> Aval:
        """The broadcast shape, in the common dtype, to which dispatch has cast the inputs."""
        return Aval(broadcast_shapes(shape_of(x), shape_of(y)), (x if hasattr(x, "dtype") else y).dtype)


class Add(Binary):
    """``x + y``."""

    linear = "jointly"
    ufunc = "add"
    expression = "a + b"
    first_argument = "numbers"
    foreach = True

    def vjp_x(self, f, g, out, x, y):
        return g if g.shape == x.shape else f.sum_to(g, shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return g if g.shape == y.shape else f.sum_to(g, shape=y.shape)


class Sub(Binary):
    """``x - y``."""

    linear = "jointly"
    ufunc = "subtract"
    grad_overloads = {(True, False): "RsubBackward1"}
    expression = "a - b"
    aliases = ("subtract",)
    inplace_form = "reals"
    first_argument = "numbers"
    foreach = True

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(g, shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.neg(g), shape=y.shape)


class Mul(Binary):
    """``x * y``."""

    linear = "separately"
    ufunc = "multiply"
    saves = ("x", "y")
    reads = {"x": ("y",), "y": ("x",)}
    expression = "a * b"
    keeps_digits = True
    aliases = ("multiply",)
    first_argument = "numbers"
    foreach = True

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, f.conj(y)), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, f.conj(x)), shape=y.shape)


class Div(Binary):
    """``x / y``."""

    linear = "first"
    ufunc = "true_divide"
    grad_overloads = {(True, False): "MulBackward0"}
    saves = ("x", "y")
    reads = {"x": ("y",), "y": ("x", "y")}
    promotion = "float"
    expression = "a / b"
    keeps_digits = True
    aliases = (
        "divide",
        "true_divide",
    )
    first_argument = "numbers"
    foreach = True

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.div(g, f.conj(y)), shape=x.shape)

    # d(x / y) = -x / y^2 dy
    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.neg(f.mul(g, f.conj(f.div(f.div(x, y), y)))), shape=y.shape)


def _one_less(f: OpNamespace, y: Operand) -> Operand:
    """Return ``y - 1``, but 0 where ``y`` is 0; a number for a number, which does not widen tensors."""
    if isinstance(y, np.generic):  # as which numbers meet 16-bit floats
        y = complex(y) if y.dtype.kind == "c" else float(y)
    if isinstance(y, (int, float, complex)):
        return y - 1 if y else 0
    return f.where(f.eq(y, 0), 0, f.sub(y, 1))


class Pow(Binary):
    """``x ** y``."""

    ufunc = "power"
    numbers_fit = True
    grad_overloads = {(True, False): "PowBackward2", (False, False): "PowBackward1"}
    saves = ("x", "y", "out")
    reads = {"x": ("x", "y"), "y": ("x", "y", "out")}
    expression = "pow(a, b)"
    float_only = True
    foreach = True

    def expression_for(self, args, attrs):
        """Write powers to some constants as products and roots, as array libraries do; PyTorch takes no roots
        of float16."""
        exponent = args[1]
        if exponent.__class__ not in (int, float) or (
            exponent in (0.5, -0.5) and _dtype(args[0]) == np.float16
        ):
            return self.expression
        return _POWERS.get(exponent, self.expression)

    inplace_form = "method"
    first_argument = "number"
    autocast_cuda = "float32"

    # y * x^(y-1), and 0 where y == 0 (also at x == 0)
    def vjp_x(self, f, g, out, x, y):
        slope = f.mul(y, f.pow(x, _one_less(f, y)))
        return f.sum_to(f.mul(g, f.conj(slope)), shape=x.shape)

    # x^y log x, and 0 where x == 0 and y >= 0, which the log reads as 1. It is taken in out's dtype, as a
    # negative x may meet a complex y; where() of two numbers, should x be one, would have no dtype.
    def vjp_y(self, f, g, out, x, y):
        flat = f.logical_and(f.eq(x, 0), f.ge(y, 0))
        safe = f.add(x, f.cast(flat, dtype=out.dtype))
        slope = f.where(flat, 0.0, f.mul(out, f.log(safe)))
        return f.sum_to(f.mul(g, f.conj(slope)), shape=y.shape)


class Atan2(Binary):
    """Angle of the point ``(y=x, x=y)``: ``atan2(x, y)`` as PyTorch orders them."""

    ufunc = "arctan2"
    saves = ("x", "y")
    promotion = "float"
    expression = "atan2(a, b)"
    aliases = ("arctan2",)
    second_is_tensor = True
    autocast_cuda = "widest"

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, f.div(y, _squared_radius(f, x, y))), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.neg(f.mul(g, f.div(x, _squared_radius(f, x, y)))), shape=y.shape)


def _squared_radius(f: OpNamespace, x: Operand, y: Operand) -> Operand:
    """Return ``x^2 + y^2``, but 1 at the origin, so that the gradient there is 0, as in PyTorch."""
    square = f.add(f.mul(x, x), f.mul(y, y))
    return f.where(f.eq(square, 0.0), 1.0, square)


class Hypot(Binary):
    """``sqrt(x^2 + y^2)`` without overflow."""

    ufunc = "hypot"
    saves = ("x", "y", "out")
    promotion = "float"
    expression = "hypot(a, b)"
    second_is_tensor = True

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, f.div(x, out)), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, f.div(y, out)), shape=y.shape)


class Neg(Unary):
    """``-x``."""

    linear = "jointly"
    ufunc = "negative"
    expression = "-a"
    aliases = ("negative",)
    inplace_form = "reals"
    out = "kept"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.neg(g)


class Abs(Unary):
    """Magnitude."""

    ufunc = "absolute"
    saves = ("x",)
    expression = "abs(a)"
    aliases = ("absolute",)
    inplace_functions = ("abs_",)
    out = "kept"
    foreach = True

    def infer(self, x):
        """The input's shape in a real dtype."""
        return Aval(x.shape, real_dtype(x))

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.sign(x))


class Sign(Unary):
    """-1, 0 or 1 (0 for NaN, as in PyTorch); ``x / |x|`` of a complex number."""

    saves = ("x", "out")
    expression = "1 if a > 0 else (-1 if a < 0 else 0)"
    aliases = ("sgn",)
    inplace_functions = False
    out = "kept"
    alias_grad_names = {"sgn": "SgnBackward0"}
    foreach = True

    def forward(self, xp, x, *, out=None):
        """The sign of a boolean is itself, that of NaN is 0."""
        if x.dtype.kind == "b":
            return x.copy()
        return xp.sign(x) if x.dtype.kind in "iuc" else xp.where(x != x, x.dtype.type(0), xp.sign(x))

    # for complex x: the component of g orthogonal to the direction x / |x|, divided by |x|
    def vjp_x(self, f, g, out, x):
        if not is_complex(x):
            return f.mul(g, 0)
        size, zero = f.abs(x), f.eq(x, 0)
        along = f.mul(f.real(f.mul(g, f.conj(out))), out)
        return f.where(zero, 0.0, f.div(f.sub(g, along), f.where(zero, 1.0, size)))


class Where(Primitive):
    """``x`` where ``condition``, else ``y``."""

    kind = Kind.ELEMENTWISE
    inputs = ("condition", "x", "y")
    saves = ("condition",)
    promotion = "same"
    promoted_from = 1
    numbers_fit = True
    expression = "b if a else c"

    def infer(self, condition, x, y):
        """The broadcast shape of all three."""
        like = x if hasattr(x, "dtype") else y
        dtype = like.dtype if hasattr(like, "dtype") else np.result_type(type(x), type(y))
        return Aval(broadcast_shapes(shape_of(condition), shape_of(x), shape_of(y)), dtype)

    def forward(self, xp, condition, x, y, *, out=None):
        """Select elementwise."""
        return xp.where(condition, x, y)

    def vjp_x(self, f, g, out, condition, x, y):
        return f.sum_to(f.where(condition, g, 0), shape=x.shape)

    def vjp_y(self, f, g, out, condition, x, y):
        return f.sum_to(f.where(condition, 0, g), shape=y.shape)


add, sub, mul, div, pow = Add(), Sub(), Mul(), Div(), Pow()
atan2, hypot = Atan2(), Hypot()
neg, abs, sign = Neg(), Abs(), Sign()
where = Where()
