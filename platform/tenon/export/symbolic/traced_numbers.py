"""Sizes of tensors during a capture with free sizes: integers that note what Python decides by them.

``TracedSize`` is an int with the expression that gives it, and so are the results of its operators; a
quotient such as ``size / 2`` is a ``TracedFloat``. Their comparisons are added to ``Decisions``. When the
capture has ended they are plain numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex, TypeAlias

from tenon.engine.types import Nested
from tenon.export.places import Path, integers_in
from tenon.export.sizes import FUNCTIONS, Expression
from tenon.export.symbolic.size_guards import Opaque, Traced, computed, symbols_of
from tenon.export.symbolic.tracing import Number, Tracing, number
from tenon.graph.scalar_functions import FUNCTIONS as SCALAR_FUNCTIONS
from tenon.random.draws import Draw

#: A method of an operator: of a number and another operand, to a number, a bool or NotImplemented.
_Method: TypeAlias = Callable[[Any, Any], Any]  # as described
#: The largest denominator of a float computed from sizes that is taken for an exact fraction.
_LARGEST_DENOMINATOR = 1 << 20
#: The largest exponent of a power that is written as products.
_LARGEST_POWER = 4


def _shared(left: Number, right: Number) -> Tracing:
    tracing = left.tracing or right.tracing
    assert tracing is not None
    return tracing


def _result(function: str, value: int, left: Number, right: Number) -> int:
    """Return ``value``, that of a function of integers, as a traced number."""
    tracing = _shared(left, right)
    if not tracing.listens():
        return value
    size = computed(function, left.size, right.size)
    if isinstance(size, int):
        return value
    if function in ("floordiv", "mod") and isinstance(size, Expression):
        tracing.divided(size, value)
    return TracedSize.of(value, tracing, size)


def _integral(function: str, swapped: bool) -> _Method:
    """Return the method of an operator of two integers; of an integer and a float, see ``_real``."""
    compute = FUNCTIONS[function][0]
    real = _real(function, swapped)

    def method(self: TracedSize, other: object) -> Any:  # a number, or NotImplemented
        if isinstance(other, float):
            return real(self, other)
        operand = number(other)
        if operand is None:
            return NotImplemented
        left, right = (operand, number(self)) if swapped else (number(self), operand)
        assert left is not None and right is not None
        return _result(function, compute(int(left.plain), int(right.plain)), left, right)

    return method


def _real(function: str, swapped: bool) -> _Method:
    """Return the method of an operator whose result is a float."""
    compute = SCALAR_FUNCTIONS[function][0]

    def method(self: TracedSize | TracedFloat, other: object) -> Any:  # a number, or NotImplemented
        operand = number(other)
        if operand is None:
            return NotImplemented
        left, right = (operand, number(self)) if swapped else (number(self), operand)
        assert left is not None and right is not None
        tracing = _shared(left, right)
        value = compute(left.plain, right.plain)
        if not tracing.listens() or not isinstance(value, float | int):
            return value
        size, denominator = _fraction(function, left, right)
        return TracedFloat.of(float(value), tracing, size, denominator)

    return method


def _fraction(function: str, left: Number, right: Number) -> tuple[Traced, int]:
    """Return a function of two operands as an expression divided by an integer, where it is one."""
    one, other = left.size, right.size
    if function == "div" and isinstance(other, int) and other > 0:
        one, denominator = computed("mul", one, right.denominator), left.denominator * other
    elif function == "mul" and (isinstance(one, int) or isinstance(other, int)):
        one, denominator = computed("mul", one, other), left.denominator * right.denominator
    elif function in ("add", "sub"):
        denominator = left.denominator * right.denominator
        one = computed(
            function,
            computed("mul", one, right.denominator),
            computed("mul", other, left.denominator),
        )
    else:
        one, denominator = Opaque(frozenset(symbols_of(one) | symbols_of(other))), 1
    if denominator > _LARGEST_DENOMINATOR:
        return Opaque(frozenset(symbols_of(one))), 1
    return one, denominator


def _comparison(question: str, negated: bool = False) -> _Method:
    """Return the method of a comparison."""

    def method(self: TracedSize | TracedFloat, other: object) -> Any:  # a bool, or NotImplemented
        operand, own = number(other), number(self)
        if operand is None:
            return NotImplemented
        assert own is not None
        return _shared(own, operand).compare(question, own, operand) is not negated

    return method


class TracedSize(int):
    """An integer that is a size, or computed from sizes, during a capture with free sizes."""

    plain: int
    size: Traced
    tracing: Tracing

    @classmethod
    def of(cls, value: int, tracing: Tracing, size: Traced) -> TracedSize:
        """Return ``value``, which ``size`` gives."""
        self = int.__new__(cls, value)
        self.plain, self.tracing, self.size = value, tracing, size
        return self

    def operand(self) -> Number:
        """Return the number as an operand."""
        return Number(self.plain, self.size, 1, self.tracing)

    #: Code that asks ``n.__class__ is int`` takes it for one.
    __class__ = property(lambda self: int)

    __add__, __radd__ = _integral("add", False), _integral("add", True)
    __sub__, __rsub__ = _integral("sub", False), _integral("sub", True)
    __mul__ = _integral("mul", False)
    __floordiv__, __rfloordiv__ = _integral("floordiv", False), _integral("floordiv", True)
    __mod__, __rmod__ = _integral("mod", False), _integral("mod", True)
    __truediv__, __rtruediv__ = _real("div", False), _real("div", True)
    __lt__, __le__ = _comparison("lt"), _comparison("le")
    __gt__, __ge__ = _comparison("gt"), _comparison("ge")
    __eq__, __ne__ = _comparison("eq"), _comparison("eq", negated=True)

    def __rmul__(self, other: object) -> Any:  # a number, or a repeated sequence
        if isinstance(other, list | tuple | str | bytes):
            return other * self.plain
        return _TIMES(self, other)

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        self.tracing.looked_up(self)
        return hash(self.plain)

    def __neg__(self) -> Any:  # an int
        return 0 - self

    def __pos__(self) -> TracedSize:
        return self

    def __abs__(self) -> Any:  # an int
        return -self if self < 0 else self

    def __pow__(self, exponent: object, modulus: int | None = None) -> Any:  # an int or a float
        if type(exponent) is int and modulus is None and 1 <= exponent <= _LARGEST_POWER:
            return math.prod([self] * exponent)
        if isinstance(exponent, float):
            return _POWER(self, exponent)
        power = number(exponent)
        if power is None:
            return NotImplemented
        return self._opaque(pow(self.plain, int(power.plain), modulus), power)

    def __rpow__(self, base: object, modulus: int | None = None) -> Any:  # an int or a float
        operand = number(base)
        if operand is None or modulus is not None:
            return NotImplemented
        return self._opaque(operand.plain**self.plain, operand)

    def __divmod__(self, other: object) -> Any:  # two numbers
        return self // other, self % other

    def __lshift__(self, count: SupportsIndex) -> Any:  # an int
        return self * (1 << int(count))

    def __rshift__(self, count: SupportsIndex) -> Any:  # an int
        return self // (1 << int(count))

    def __and__(self, other: int) -> Any:  # an int
        if type(other) is int and other > 0 and other & (other + 1) == 0:
            return self % (other + 1)
        return self._opaque(self.plain & int(other), number(other))

    def __or__(self, other: int) -> Any:  # an int
        return self._opaque(self.plain | int(other), number(other))

    def __xor__(self, other: int) -> Any:  # an int
        return self._opaque(self.plain ^ int(other), number(other))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Any:  # an int
        return -1 - self

    def bit_length(self) -> int:
        """Return the number of bits, as ``int.bit_length``."""
        return int(self._opaque(self.plain.bit_length(), None))

    def _opaque(self, value: float, other: Number | None) -> float:
        if not self.tracing.listens():
            return value
        symbols = symbols_of(self.size) | (symbols_of(other.size) if other is not None else set())
        if isinstance(value, float):
            return TracedFloat.of(value, self.tracing, Opaque(frozenset(symbols)), 1)
        return TracedSize.of(value, self.tracing, Opaque(frozenset(symbols)))

    def __int__(self) -> int:
        self.tracing.converted(self, "int()")
        return self.plain

    def __float__(self) -> float:
        self.tracing.converted(self, "float() or a function of floats")
        return float(self.plain)

    def __trunc__(self) -> TracedSize:
        return self

    __floor__ = __ceil__ = __trunc__

    def __round__(self, ndigits: SupportsIndex = 0) -> TracedSize:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type[int], tuple[int]]:
        return int, (self.plain,)


_TIMES, _POWER = _integral("mul", True), _real("pow", False)


class TracedFloat(float):
    """A float computed from sizes during a capture with free sizes: ``size / denominator``."""

    plain: float
    size: Traced
    denominator: int
    tracing: Tracing

    @classmethod
    def of(cls, value: float, tracing: Tracing, size: Traced, denominator: int) -> TracedFloat:
        """Return ``value``, which ``size / denominator`` gives."""
        self = float.__new__(cls, value)
        self.plain, self.tracing, self.size, self.denominator = value, tracing, size, denominator
        return self

    def operand(self) -> Number:
        """Return the number as an operand."""
        return Number(self.plain, self.size, self.denominator, self.tracing)

    #: Code that asks ``n.__class__ is float`` takes it for one.
    __class__ = property(lambda self: float)

    __add__, __radd__ = _real("add", False), _real("add", True)
    __sub__, __rsub__ = _real("sub", False), _real("sub", True)
    __mul__, __rmul__ = _real("mul", False), _real("mul", True)
    __truediv__, __rtruediv__ = _real("div", False), _real("div", True)
    __floordiv__, __rfloordiv__ = _real("floordiv", False), _real("floordiv", True)
    __mod__, __rmod__ = _real("mod", False), _real("mod", True)
    __pow__, __rpow__ = _real("pow", False), _real("pow", True)  # type: ignore[assignment]  # overloads
    __lt__, __le__ = _comparison("lt"), _comparison("le")
    __gt__, __ge__ = _comparison("gt"), _comparison("ge")
    __eq__, __ne__ = _comparison("eq"), _comparison("eq", negated=True)

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        return hash(self.plain)

    def __neg__(self) -> Any:  # a float
        return 0 - self

    def __abs__(self) -> Any:  # a float
        return -self if self < 0 else self

    def __floor__(self) -> int:
        return self._whole(math.floor(self.plain), self.size, 0)

    def __ceil__(self) -> int:
        return self._whole(math.ceil(self.plain), self.size, self.denominator - 1)

    def _whole(self, value: int, size: Traced, added: int) -> int:
        if not self.tracing.listens():
            return value
        own = Number(value, computed("add", size, added), tracing=self.tracing)
        whole = Number(self.denominator, self.denominator)
        return _result("floordiv", value, own, whole)

    def __int__(self) -> int:
        self.tracing.converted(self, "int()")
        return int(self.plain)

    def __float__(self) -> float:
        self.tracing.converted(self, "float() or a function of floats")
        return self.plain

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type[float], tuple[float]]:
        return float, (self.plain,)


def is_traced(value: object) -> bool:
    """Whether a number is traced."""
    return type(value) is TracedSize or type(value) is TracedFloat


def traced_places(args: Sequence[object], attrs: Mapping[str, object]) -> dict[Path, Expression]:
    """Return the expressions of the integers in arguments and attrs that were computed from sizes."""
    return {
        path: value.size
        for path, value in integers_in(args, attrs)
        if type(value) is TracedSize and isinstance(value.size, Expression)
    }


def untraced(value: Nested) -> Any:  # a nest of any type
    """Return a nest with plain numbers in place of traced ones; the nest itself if it has none."""
    kind = type(value)
    if kind is TracedSize or kind is TracedFloat:
        return value.plain
    if kind is list or isinstance(value, tuple):
        items = [untraced(each) for each in value]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return items if kind is list else tuple.__new__(kind, items)
    if kind is dict:
        return {key: untraced(each) for key, each in value.items()}
    if kind is Draw:
        shape, numbers = untraced(value.shape), untraced(value.arguments)
        same = shape is value.shape and numbers is value.arguments
        return value if same else replace(value, shape=shape, arguments=numbers)
    if kind is slice:
        parts = (value.start, value.stop, value.step)
        return slice(*map(untraced, parts)) if any(type(p) is TracedSize for p in parts) else value
    return value
