"""Comparisons and logic: boolean results, no gradients."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tenon.core.aval import Aval, broadcast_shapes, shape_of
from tenon.core.op import Kind, Primitive

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


class BitwiseNot(Primitive):
    """Bits inverted; logical not of booleans."""

    kind = Kind.ELEMENTWISE
    ufunc = "invert"

    def infer(self, x: Any) -> Any:
        """The input's own aval."""
        return Aval(x.shape, x.dtype)


def _make(base: type, name: str, ufunc: str, doc: str) -> Any:
    return type(
        name.title().replace("_", ""),
        (base,),
        {"ufunc": ufunc, "name": name, "__doc__": doc, "__module__": __name__},
    )()


eq = _make(Compare, "eq", "equal", "``x == y``.")
ne = _make(Compare, "ne", "not_equal", "``x != y``.")
lt = _make(Compare, "lt", "less", "``x < y``.")
le = _make(Compare, "le", "less_equal", "``x <= y``.")
gt = _make(Compare, "gt", "greater", "``x > y``.")
ge = _make(Compare, "ge", "greater_equal", "``x >= y``.")
logical_and = _make(Compare, "logical_and", "logical_and", "Both are non-zero.")
logical_or = _make(Compare, "logical_or", "logical_or", "Either is non-zero.")
logical_xor = _make(Compare, "logical_xor", "logical_xor", "Exactly one is non-zero.")
logical_not = _make(Test, "logical_not", "logical_not", "Is zero.")
isnan = _make(Test, "isnan", "isnan", "Is NaN.")
isinf = _make(Test, "isinf", "isinf", "Is infinite.")
isfinite = _make(Test, "isfinite", "isfinite", "Is neither NaN nor infinite.")
signbit = _make(Test, "signbit", "signbit", "The sign bit is set.")
bitwise_and = _make(Bitwise, "bitwise_and", "bitwise_and", "Bitwise and.")
bitwise_or = _make(Bitwise, "bitwise_or", "bitwise_or", "Bitwise or.")
bitwise_xor = _make(Bitwise, "bitwise_xor", "bitwise_xor", "Bitwise exclusive or.")
bitwise_left_shift = _make(Bitwise, "bitwise_left_shift", "left_shift", "``x << y``.")
bitwise_right_shift = _make(Bitwise, "bitwise_right_shift", "right_shift", "``x >> y``.")
bitwise_not = BitwiseNot()
