"""Comparisons and logic: boolean results, no gradients."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tenon.engine.aval import Aval, broadcast_shapes, shape_of
from tenon.engine.op import Kind, Primitive

_BOOL = np.dtype(np.bool_)


class Compare(Primitive):
    """Base of the binary ops that return booleans."""

    kind = Kind.ELEMENTWISE
    inputs = ("x", "y")
    promotion = "same"

    def infer(self, x: Any, y: Any) -> Any:
        """Booleans of the broadcast shape."""
        return Aval(broadcast_shapes(shape_of(x), shape_of(y)), _BOOL)


class Test(Primitive):
    """Base of the unary ops that return booleans."""

    kind = Kind.ELEMENTWISE

    def infer(self, x: Any) -> Any:
        """Booleans of the input's shape."""
        return Aval(x.shape, _BOOL)


class Bitwise(Primitive):
    """Base of the integer and boolean bit operations."""

    kind = Kind.ELEMENTWISE
    inputs: ClassVar[tuple[str, ...]] = ("x", "y")
    promotion = "same"

    def infer(self, x: Any, y: Any) -> Any:
        """The broadcast shape, in the common dtype."""
        return Aval(broadcast_shapes(shape_of(x), shape_of(y)), (x if hasattr(x, "dtype") else y).dtype)


class Eq(Compare):
    """``x == y``."""

    ufunc = "equal"


class Ne(Compare):
    """``x != y``."""

    ufunc = "not_equal"


class Lt(Compare):
    """``x < y``."""

    ufunc = "less"


class Le(Compare):
    """``x <= y``."""

    ufunc = "less_equal"


class Gt(Compare):
    """``x > y``."""

    ufunc = "greater"


class Ge(Compare):
    """``x >= y``."""

    ufunc = "greater_equal"


class LogicalAnd(Compare):
    """Both are non-zero."""

    ufunc = "logical_and"


class LogicalOr(Compare):
    """Either is non-zero."""

    ufunc = "logical_or"


class LogicalXor(Compare):
    """Exactly one is non-zero."""

    ufunc = "logical_xor"


class LogicalNot(Test):
    """Is zero."""

    ufunc = "logical_not"


class Isnan(Test):
    """Is NaN."""

    ufunc = "isnan"


class Isinf(Test):
    """Is infinite."""

    ufunc = "isinf"


class Isfinite(Test):
    """Is neither NaN nor infinite."""

    ufunc = "isfinite"


class Signbit(Test):
    """The sign bit is set."""

    ufunc = "signbit"


class BitwiseAnd(Bitwise):
    """Bitwise and."""

    ufunc = "bitwise_and"


class BitwiseOr(Bitwise):
    """Bitwise or."""

    ufunc = "bitwise_or"


class BitwiseXor(Bitwise):
    """Bitwise exclusive or."""

    ufunc = "bitwise_xor"


class BitwiseLeftShift(Bitwise):
    """``x << y``."""

    ufunc = "left_shift"


class BitwiseRightShift(Bitwise):
    """``x >> y``."""

    ufunc = "right_shift"


class BitwiseNot(Primitive):
    """Bits inverted; logical not of booleans."""

    kind = Kind.ELEMENTWISE
    ufunc = "invert"

    def infer(self, x: Any) -> Any:
        """The input's own aval."""
        return Aval(x.shape, x.dtype)


eq, ne, lt, le, gt, ge = Eq(), Ne(), Lt(), Le(), Gt(), Ge()
logical_and, logical_or, logical_xor, logical_not = LogicalAnd(), LogicalOr(), LogicalXor(), LogicalNot()
isnan, isinf, isfinite, signbit = Isnan(), Isinf(), Isfinite(), Signbit()
bitwise_and, bitwise_or, bitwise_xor, bitwise_not = BitwiseAnd(), BitwiseOr(), BitwiseXor(), BitwiseNot()
bitwise_left_shift, bitwise_right_shift = BitwiseLeftShift(), BitwiseRightShift()
