"""Comparisons and logic: boolean results, no gradients."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tenon.engine.aval import Aval, refuse_kinds, shape_of
from tenon.engine.op import Kind, Primitive
from tenon.kernels.shapes import broadcast_shapes

_BOOL = np.dtype(np.bool_)


class Compare(Primitive):
    """Base of the binary ops that return booleans."""

    kind = Kind.ELEMENTWISE
    inputs = ("x", "y")
    promotion = "same"
    boolean = True
    public = True

    def infer(self, x: Aval, y: Aval) -> Aval:
        """Booleans of the broadcast shape."""
        return Aval(broadcast_shapes(shape_of(x), shape_of(y)), _BOOL)


class Test(Primitive):
    """Base of the unary ops that return booleans."""

    kind = Kind.ELEMENTWISE
    boolean = True
    public = True
    inplace_form = ""

    def infer(self, x: Aval) -> Aval:
        """Booleans of the input's shape."""
        return Aval(x.shape, _BOOL)


class Bitwise(Primitive):
    """Base of the integer and boolean bit operations."""

    kind = Kind.ELEMENTWISE
    inputs: ClassVar[tuple[str, ...]] = ("x", "y")
    promotion = "same"
    public = True
    first_argument = "number"

    def infer(self, x: Aval, y: Aval) -> Aval:
        """The broadcast shape, in the common dtype."""
        return Aval(broadcast_shapes(shape_of(x), shape_of(y)), (x if hasattr(x, "dtype") else y).dtype)


class Eq(Compare):
    """``x == y``."""

    ufunc = "equal"
    expression = "a == b"


class Ne(Compare):
    """``x != y``."""

    ufunc = "not_equal"
    expression = "a != b"
    aliases = ("not_equal",)


class Lt(Compare):
    """``x < y``."""

    ufunc = "less"
    expression = "a < b"
    aliases = ("less",)
    orders = True


class Le(Compare):
    """``x <= y``."""

    ufunc = "less_equal"
    expression = "a <= b"
    aliases = ("less_equal",)
    orders = True


class Gt(Compare):
    """``x > y``."""

    ufunc = "greater"
    expression = "a > b"
    aliases = ("greater",)
    orders = True


class Ge(Compare):
    """``x >= y``."""

    ufunc = "greater_equal"
    expression = "a >= b"
    aliases = ("greater_equal",)
    orders = True


class LogicalAnd(Compare):
    """Whether both are non-zero."""

    ufunc = "logical_and"
    expression = "(a != 0) & (b != 0)"
    second_is_tensor = True


class LogicalOr(Compare):
    """Whether either is non-zero."""

    ufunc = "logical_or"
    expression = "(a != 0) | (b != 0)"
    second_is_tensor = True


class LogicalXor(Compare):
    """Whether exactly one is non-zero."""

    ufunc = "logical_xor"
    expression = "(a != 0) ^ (b != 0)"
    second_is_tensor = True


class LogicalNot(Test):
    """Whether ``x`` is zero."""

    ufunc = "logical_not"
    expression = "a == 0"
    inplace_form = "op"


class Isnan(Test):
    """Whether ``x`` is NaN."""

    ufunc = "isnan"
    expression = "isnan(a)"


class Isinf(Test):
    """Whether ``x`` is infinite."""

    ufunc = "isinf"
    expression = "isinf(a)"


class Isfinite(Test):
    """Whether ``x`` is neither NaN nor infinite."""

    ufunc = "isfinite"
    expression = "isfinite(a)"


class Signbit(Test):
    """Whether the sign bit is set."""

    ufunc = "signbit"
    expression = "signbit(a)"
    out = "boolean"


class BitwiseAnd(Bitwise):
    """Bitwise and."""

    ufunc = "bitwise_and"
    expression = "a & b"


class BitwiseOr(Bitwise):
    """Bitwise or."""

    ufunc = "bitwise_or"
    expression = "a | b"


class BitwiseXor(Bitwise):
    """Bitwise exclusive or."""

    ufunc = "bitwise_xor"
    expression = "a ^ b"


class BitwiseLeftShift(Bitwise):
    """``x << y``."""

    def forward(self, xp, x, y, *, out=None):
        """Of integers only: NumPy shifts booleans as int8."""
        refuse_kinds(self.name, "b", x, y)
        return xp.left_shift(x, y, out=out)


class BitwiseRightShift(Bitwise):
    """``x >> y``."""

    def forward(self, xp, x, y, *, out=None):
        """Of integers only: NumPy shifts booleans as int8."""
        refuse_kinds(self.name, "b", x, y)
        return xp.right_shift(x, y, out=out)


class BitwiseNot(Primitive):
    """Bits inverted; logical not of booleans."""

    kind = Kind.ELEMENTWISE
    ufunc = "invert"
    expression = "~a"
    public = True
    out = "kept"

    def infer(self, x: Aval) -> Aval:
        """The input's own aval."""
        return Aval(x.shape, x.dtype)


eq, ne, lt, le, gt, ge = Eq(), Ne(), Lt(), Le(), Gt(), Ge()
logical_and, logical_or, logical_xor, logical_not = LogicalAnd(), LogicalOr(), LogicalXor(), LogicalNot()
isnan, isinf, isfinite, signbit = Isnan(), Isinf(), Isfinite(), Signbit()
bitwise_and, bitwise_or, bitwise_xor, bitwise_not = BitwiseAnd(), BitwiseOr(), BitwiseXor(), BitwiseNot()
bitwise_left_shift, bitwise_right_shift = BitwiseLeftShift(), BitwiseRightShift()
