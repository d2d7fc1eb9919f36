"""Operators, and elementwise methods with their in-place forms."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np

from tenon.compat.rerouting import refused
from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.aval import refuse_kinds
from tenon.engine.interceptor import SLOT
from tenon.engine.op import table as f
from tenon.engine.operands import wrong_type
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError, UnsupportedError
from tenon.kernels.rounding import is_short
from tenon.tensors.inplace import inplace
from tenon.tensors.methods.deprecated_order import with_value_first
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.in_place import through_method
from tenon.tensors.methods.scaling import (
    alpha_times,
    check_alpha,
    interpolated,
    is_integral,
    plus_product,
    plus_quotient,
    rounded_once,
)
from tenon.tensors.methods.truncation import trunc_divide
from tenon.tensors.precision import runs_in
from tenon.tensors.wrong_arguments import only_numbers

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number

#: Types of numbers that ops take without conversion.
_PLAIN = frozenset((float, int))
_NUMBER = (int, float, complex, np.number, np.bool_)


def operand(value: object) -> Any:  # NotImplemented is of no type that operators can return
    """Return ``value`` as a tensor or number if an operator takes it (arrays become tensors), else
    NotImplemented."""
    if isinstance(value, Value) or value.__class__ in (float, int, bool, complex):
        return value
    if isinstance(value, (np.number, np.bool_)):
        return value.item()
    if isinstance(value, numbers.Number):
        return value
    if isinstance(value, np.ndarray):
        from tenon.tensors.creation.create import from_numpy

        return from_numpy(value)
    return refused(value)


def _operator(name: str, reflected: bool = False) -> Operator:
    """Make the operator method that calls the op ``name``, with ``self`` second if ``reflected``."""
    by_name = f.by_name

    def method(self: Tensor, other: object) -> Tensor:
        if not isinstance(other, Value) and other.__class__ not in _PLAIN:
            other = operand(other)
            if other is NotImplemented:
                return NotImplemented
        op = by_name[name]
        pair = (other, self) if reflected else (self, other)
        return SLOT.pair(op, *pair) if SLOT.top is None else op(*pair)

    return method


def _ordering(name: str) -> Operator:
    """Make the comparison that calls the op ``name``; it raises UnsupportedError for complex numbers."""
    compare = _operator(name)

    def method(self: Tensor, other: object) -> Tensor:
        if self.raw.dtype.kind == "c" or other.__class__ is complex:
            need_order(name, self, other)
        return compare(self, other)

    return method


def is_complex(value: object) -> bool:
    """Whether ``value`` is a complex number or tensor."""
    return isinstance(value, complex) or (isinstance(value, Value) and value.raw.dtype.kind == "c")


def need_order(name: str, *values: object) -> None:
    """Raise UnsupportedError if one of ``values`` is complex: NumPy would compare the parts in turn."""
    for v in values:
        if is_complex(v):
            kind = scalar_name(FROM_NUMPY[v.raw.dtype]) if isinstance(v, Value) else "complex"
            raise UnsupportedError(
                f"\"{name}\" not implemented for '{kind}': it does not support complex inputs, which have no"
                " order"
            )


def _inplace_operator(name: str) -> Operator:
    """Make the augmented assignment method that writes the result of the op ``name`` into ``self``."""

    def method(self: Tensor, other: object) -> Tensor:
        other = operand(other)
        if other is NotImplemented:
            return NotImplemented
        return inplace(power if name == "pow" else getattr(f, name), self, other)

    return method


#: An operator's method: NotImplemented for operands that it does not take.
Operator: TypeAlias = Callable[["Tensor", Any], "Tensor"]


class Arithmetic(Family):
    """Operators, and methods of the same ops with further arguments: ``add(other, alpha=2)``."""

    __slots__ = ()

    def __add__(self, other: Tensor | object) -> Tensor:
        if (isinstance(other, Value) or other.__class__ in _PLAIN) and SLOT.top is None:
            return SLOT.pair(f.add, self, other)  # past Op.__call__: 0.15 us less
        other = operand(other)
        return other if other is NotImplemented else f.add(self, other)

    def __sub__(self, other: Tensor | object) -> Tensor:
        other = operand(other)
        return other if other is NotImplemented else _sub(self, other)

    def __rsub__(self, other: Tensor | object) -> Tensor:
        other = operand(other)
        if other.__class__ is bool:
            raise DTypeError(_NO_SUBTRACTION)
        return other if other is NotImplemented else _sub(other, self)

    def __mul__(self, other: Tensor | object) -> Tensor:
        if (isinstance(other, Value) or other.__class__ in _PLAIN) and SLOT.top is None:
            return SLOT.pair(f.mul, self, other)
        other = operand(other)
        return other if other is NotImplemented else f.mul(self, other)

    def __matmul__(self, other: Tensor | object) -> Tensor:
        if not isinstance(other, Value):
            return refused(other)
        if SLOT.top is None:
            return SLOT.pair(f.matmul, self, other)
        return f.matmul(self, other)

    def __rmatmul__(self, other: Tensor | object) -> Tensor:
        other = operand(other)
        return f.matmul(other, self) if isinstance(other, Value) else NotImplemented

    def __pow__(self, exponent: Tensor | object) -> Tensor:
        exponent = operand(exponent)
        return exponent if exponent is NotImplemented else power(self, exponent)

    def __rpow__(self, base: Tensor | object) -> Tensor:
        base = operand(base)
        return base if base is NotImplemented else power(base, self)

    def __rtruediv__(self, other: object) -> Tensor:
        if other.__class__ not in _PLAIN:
            other = operand(other)
            if other is NotImplemented:
                return NotImplemented
        if is_short(self.raw.dtype) and not isinstance(other, Value):
            return f.mul(f.reciprocal(self), other)  # rounds twice, as in PyTorch
        return SLOT.pair(f.div, other, self) if SLOT.top is None else f.div(other, self)

    __radd__ = _operator("add", True)
    __rmul__ = _operator("mul")
    __truediv__ = _operator("div")
    __floordiv__ = _operator("floor_divide")
    __rfloordiv__ = _operator("floor_divide", True)
    __mod__ = _operator("remainder")
    __rmod__ = _operator("remainder", True)
    __and__ = _operator("bitwise_and")
    __rand__ = _operator("bitwise_and", True)
    __or__ = _operator("bitwise_or")
    __ror__ = _operator("bitwise_or", True)
    __xor__ = _operator("bitwise_xor")
    __rxor__ = _operator("bitwise_xor", True)
    __lshift__ = _operator("bitwise_left_shift")
    __rshift__ = _operator("bitwise_right_shift")
    __rlshift__ = _operator("bitwise_left_shift", reflected=True)
    __rrshift__ = _operator("bitwise_right_shift", reflected=True)
    __eq__ = _operator("eq")  # type: ignore[assignment]
    __ne__ = _operator("ne")  # type: ignore[assignment]
    __lt__ = _ordering("lt")
    __le__ = _ordering("le")
    __gt__ = _ordering("gt")
    __ge__ = _ordering("ge")
    __hash__ = Value.__hash__
    __iadd__ = _inplace_operator("add")
    __isub__ = _inplace_operator("sub")
    __imul__ = _inplace_operator("mul")
    __itruediv__ = _inplace_operator("div")
    __ifloordiv__ = _inplace_operator("floor_divide")
    __imod__ = _inplace_operator("remainder")
    __ipow__ = _inplace_operator("pow")
    __iand__ = _inplace_operator("bitwise_and")
    __ior__ = _inplace_operator("bitwise_or")
    __ixor__ = _inplace_operator("bitwise_xor")
    __ilshift__ = _inplace_operator("bitwise_left_shift")
    __irshift__ = _inplace_operator("bitwise_right_shift")

    def __neg__(self) -> Tensor:
        return self.neg()

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return f.abs(self)

    def __invert__(self) -> Tensor:
        return f.bitwise_not(self)

    def neg(self) -> Tensor:
        """Return the elements with the opposite sign; DTypeError for bool tensors, as in PyTorch."""
        if self.raw.dtype.kind == "b":
            raise DTypeError(
                "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a"
                " mask, use the `~` or `logical_not()` operator instead."
            )
        return f.neg(self)

    def abs_(self) -> Tensor:
        """Replace the elements by their magnitudes; DTypeError for complex tensors, as these are real."""
        if self.raw.dtype.kind == "c":
            raise DTypeError("In-place abs is not supported for complex tensors.")
        return inplace(f.abs, self)

    def add(self, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
        """Return ``self + alpha * other``, broadcast. DTypeError for a float ``alpha`` of integer tensors."""
        if alpha != 1:
            check_alpha(alpha, self, other)
            return rounded_once(lambda x, y: f.add(x, alpha_times(alpha, x, y)), self, other)
        return SLOT.pair(f.add, self, other) if SLOT.top is None else f.add(self, other)

    def sub(self, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
        """Return ``self - alpha * other``, broadcast. DTypeError for bool tensors; ``alpha``: see ``add``."""
        if alpha == 1:
            return _sub(self, other)
        check_alpha(alpha, self, other)
        return rounded_once(lambda x, y: _sub(x, alpha_times(alpha, x, y)), self, other)

    def mul(self, other: Tensor | Number) -> Tensor:
        """Return the elementwise product ``self * other``, broadcast."""
        return f.mul(self, other)

    def div(self, other: Tensor | Number, *, rounding_mode: str | None = None) -> Tensor:
        """Return the quotient ``self / other``, broadcast; of integers it is in the default float dtype.

        With ``rounding_mode`` "trunc" (towards zero) or "floor" (down) integers remain integers.
        """
        if rounding_mode is None:
            return f.div(self, other)
        if rounding_mode == "floor":
            return f.floor_divide(self, other)
        if rounding_mode == "trunc":
            return trunc_divide(self, other)
        raise ArgumentError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )

    def pow(self, exponent: Tensor | Number) -> Tensor:
        """Return ``self ** exponent``, broadcast. DTypeError for integers to a negative integer power."""
        return power(self, exponent)

    @as_function()
    def matmul(self, other: Tensor) -> Tensor:
        """Return the matrix products of ``[*, n, m]`` and ``[*, m, p]``: ``[*, n, p]``, with ``*`` broadcast.

        A vector is a row on the left, a column on the right. ShapeError if the inner sizes ``m`` differ.
        """
        return SLOT.pair(f.matmul, self, other) if SLOT.top is None else f.matmul(self, other)

    def clamp(self, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
        """Return the elements limited to ``[min, max]``: numbers, tensors or None, but not both None."""
        if min is None and max is None:
            raise ArgumentError("torch.clamp: At least one of 'min' or 'max' must not be None")
        need_order("clamp", self, min, max)
        return f.clamp(self, min, max)

    def round(self, *, decimals: int = 0) -> Tensor:
        """Return the elements rounded to ``decimals`` digits (-1: to tens), halves to the even neighbour."""
        return f.round(self, decimals=decimals) if decimals else f.round(self)

    def where(self, condition: Tensor, other: Tensor | Number) -> Tensor:
        """Return elements of ``self`` where the bool tensor ``condition`` is true, else of ``other``."""
        if condition.raw.dtype.kind != "b":
            raise DTypeError(
                "where expected condition to be a boolean tensor, but got a tensor with dtype"
                f" {condition.dtype}"
            )
        only_numbers(other)
        return f.where(condition, self, other)

    @as_function(memory="same")
    def lerp(self, end: Tensor, weight: Tensor | Number) -> Tensor:
        """Return the linear interpolation ``self + weight * (end - self)``; dtypes must be equal.

        With the number 1 as ``weight`` it is ``end``, exactly.
        """
        if end.raw.dtype != self.raw.dtype:
            raise DTypeError(f"expected dtype {self.dtype} for `end` but got dtype {end.dtype}")
        refuse_kinds("lerp", "biu", self.raw, end.raw)
        result = rounded_once(interpolated, self, end, weight)
        if result._node is not None:
            result._node.title = f"LerpBackward{int(isinstance(weight, Value))}"
        return result

    @as_function(memory="same")
    @with_value_first
    @runs_in("usual", cuda="widest")
    def addcmul(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
        """Return ``self + value * tensor1 * tensor2``, broadcast."""
        return rounded_once(plus_product, self, tensor1, tensor2, value)

    @as_function(memory="same")
    @with_value_first
    @runs_in("usual", cuda="widest")
    def addcdiv(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
        """Return ``self + value * tensor1 / tensor2``, broadcast. DTypeError for two integer tensors."""
        if all([t.raw.dtype.kind in "iub" for t in (tensor1, tensor2)]):
            raise DTypeError(
                "Integer division with addcdiv is no longer supported: cast to a floating dtype first, or use"
                " self + value * torch.div(tensor1, tensor2, rounding_mode='trunc')."
            )
        return rounded_once(plus_quotient, self, tensor1, tensor2, value)

    def nan_to_num(
        self, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Tensor:
        """Return a copy with NaN replaced by ``nan`` and the infinities by ``posinf`` and ``neginf``: by
        default the largest and smallest finite numbers of the dtype."""
        for name, value in (("nan", nan), ("posinf", posinf), ("neginf", neginf)):
            if value is not None and not isinstance(value, (int, float, np.floating, np.integer, np.bool_)):
                raise wrong_type("nan_to_num", name, 0, value, "float")
        if self.raw.dtype.kind == "c":
            parts = [f.real(self), f.imag(self)]
            real, imag = (p.nan_to_num(nan, posinf, neginf) for p in parts)
            return f.rectangular(real, imag)
        if self.raw.dtype.kind not in "fV":
            return self.clone()
        limits: Any = ml_dtypes.finfo  # which is not typed
        info = limits(self.raw.dtype)
        high = float(info.max) if posinf is None else posinf
        low = float(info.min) if neginf is None else neginf
        return f.nan_to_num(self, nan=0.0 if nan is None else nan, high=high, low=low)

    lerp_ = through_method("lerp")
    addcmul_ = through_method("addcmul")
    addcdiv_ = through_method("addcdiv")


_NO_SUBTRACTION = (
    "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask,"
    " use the `~` or `logical_not()` operator instead."
)


def _sub(x: object, y: object) -> Tensor:
    for v in (x, y):
        if v.raw.dtype.kind == "b" if isinstance(v, Value) else v.__class__ is bool:
            raise DTypeError(_NO_SUBTRACTION)
    return f.sub(x, y)


def power(x: Any, exponent: Any) -> Tensor:  # a tensor and a number, in either order
    """Compute ``x ** exponent``; 1 and 2 are a copy and a square, except for integers to a float."""
    if exponent.__class__ in (int, float) and isinstance(x, Value):
        if exponent == 2 or exponent == 1:
            kind = x.raw.dtype.kind
            if kind in "fcV" or (exponent.__class__ is int and kind != "b"):
                return f.square(x) if exponent == 2 else f.clone(x)
            return f.pow(x, exponent)
        if exponent < 0 and exponent.__class__ is int and x.raw.dtype.kind in "iu":
            raise DTypeError("Integers to negative integer powers are not allowed.")
    if exponent.__class__ in (bool, np.bool_) and isinstance(x, Value) and x.raw.dtype.kind == "b":
        return f.logical_or(x, not exponent)
    truths = x.__class__ in (bool, np.bool_) or (isinstance(x, Value) and x.raw.dtype.kind == "b")
    if truths and isinstance(exponent, Value) and exponent.raw.dtype.kind == "b":
        raise UnsupportedError(
            "\"pow\" not implemented for 'Bool'. Convert one operand with .to(torch.int64) first."
        )
    if is_integral(x) and isinstance(exponent, Value) and exponent.raw.dtype.kind == "i":
        return f.whole_power(x, exponent)
    return f.pow(x, exponent)
