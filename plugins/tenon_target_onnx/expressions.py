"""Expressions of elementwise ops (``tenon.extend.expressions``) as ONNX nodes.

All numbers of an expression have one dtype; comparisons are booleans.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tenon.extend import expressions
from tenon_target_onnx.builder import BOOL, Builder

#: Functions that are operators of the same meaning.
_SAME = {
    "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "erf": "Erf", "sigmoid": "Sigmoid", "sqrt": "Sqrt", "abs": "Abs",
}  # fmt: skip
_ROUNDING = {"floor": "Floor", "ceil": "Ceil", "rint": "Round"}
_ARITHMETIC = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow"}
_LOGIC = {ast.BitAnd: "And", ast.BitOr: "Or", ast.BitXor: "Xor"}
_COMPARISONS = {
    ast.Eq: "Equal", ast.Lt: "Less", ast.Gt: "Greater", ast.LtE: "LessOrEqual", ast.GtE: "GreaterOrEqual",
}  # fmt: skip
#: The operators of arithmetic on booleans.
_ON_BOOLEANS = {"Add": "Or", "Mul": "And", "maximum": "Or", "minimum": "And"}


class Term(NamedTuple):
    """A value, or a number that has no node yet."""

    name: str = ""
    boolean: bool = False
    number: float | None = None


class Translation(expressions.Translator[Term]):
    """Adds the nodes of expressions over operands of ``dtype``."""

    def __init__(self, builder: Builder, dtype: np.dtype, names: Mapping[str, Term]) -> None:
        self.b, self.dtype, self.names = builder, dtype, names

    def text(self, term: Term) -> str:
        """Return the name of a value in ``dtype``, or of a boolean."""
        if term.number is not None:
            return self.b.constant(term.number, self.dtype)
        return term.name

    def numeric(self, term: Term) -> str:
        """Return the name of a value in ``dtype``."""
        return self.b.cast(term.name, self.dtype) if term.boolean and self.dtype != BOOL else self.text(term)

    def condition(self, term: Term) -> str:
        """Return the name of a boolean."""
        if term.boolean or self.dtype == BOOL:
            return self.text(term)
        return self.b.cast(self.text(term), BOOL)

    def call(self, operator: str, *terms: Term) -> Term:
        """Add a node of numbers."""
        return Term(self.b.call(operator, *map(self.numeric, terms)), self.dtype == BOOL)

    def test(self, operator: str, *terms: Term) -> Term:
        """Add a node that compares numbers."""
        return Term(self.b.call(operator, *map(self.numeric, terms)), True)

    def number(self, value: float) -> Term:
        """Return a number."""
        return Term(number=value)

    def where(self, condition: Term, one: Term, other: Term) -> Term:
        """Add a selection."""
        if self.dtype == BOOL or (one.boolean and other.boolean):  # runtimes select no booleans
            chosen, left, right = self.condition(condition), self.condition(one), self.condition(other)
            first = self.b.call("And", chosen, left)
            second = self.b.call("And", self.b.call("Not", chosen), right)
            return Term(self.b.call("Or", first, second), True)
        return Term(self.b.call("Where", self.condition(condition), self.numeric(one), self.numeric(other)))

    # --- syntax ---

    def named(self, name: str) -> Term:
        """Return the value of an operand or attr, or a number."""
        if name in self.names:
            return self.names[name]
        if name in ("inf", "nan"):
            return self.number(float(name))
        raise NotImplementedError(f"no ONNX for the name {name}")

    def binary_operator(self, op: ast.operator, left: Term, right: Term) -> Term:
        """Add an operator of numbers or booleans; compute it if both operands are numbers."""
        if type(op) in _LOGIC:
            if self.dtype == BOOL or (left.boolean and right.boolean):
                return Term(self.b.call(_LOGIC[type(op)], self.condition(left), self.condition(right)), True)
            if self.b.opset < 18:
                raise NotImplementedError("bitwise operators need opset 18")
            return self.call(f"Bitwise{_LOGIC[type(op)]}", left, right)
        operator = _ARITHMETIC.get(type(op))
        if operator is None or (self.dtype == BOOL and operator not in _ON_BOOLEANS):
            raise NotImplementedError(f"no ONNX for {type(op).__name__} of {self.dtype}")
        if left.number is not None and right.number is not None:
            return self.number(_COMPUTE[operator](left.number, right.number))
        return self.call(_ON_BOOLEANS[operator] if self.dtype == BOOL else operator, left, right)

    def unary_operator(self, op: ast.unaryop, term: Term) -> Term:
        """Add a negation or an inversion."""
        if isinstance(op, ast.Invert):
            if term.boolean or self.dtype == BOOL:
                return Term(self.b.call("Not", self.condition(term)), True)
            if self.b.opset < 18:
                raise NotImplementedError("bitwise operators need opset 18")
            return self.call("BitwiseNot", term)
        if isinstance(op, ast.USub):
            return self.number(-term.number) if term.number is not None else self.call("Neg", term)
        raise NotImplementedError(f"no ONNX for {type(op).__name__}")

    def comparison(self, op: ast.cmpop, left: Term, right: Term) -> Term:
        """Add a comparison, which gives a boolean."""
        if isinstance(op, ast.NotEq):
            return Term(self.b.call("Not", self.comparison(ast.Eq(), left, right).name), True)
        operator = _COMPARISONS[type(op)]
        if self.dtype == BOOL:
            if isinstance(op, ast.Eq):
                return self.test("Equal", left, right)
            wide = [Term(self.b.cast(self.condition(t), np.dtype(np.int32))) for t in (left, right)]
            return Term(self.b.call(operator, *(t.name for t in wide)), True)
        return self.test(operator, left, right)

    # --- functions ---

    def function(self, name: str, *terms: Term) -> Term:
        """Add the nodes of a function of the expression language."""
        if name in _SAME:
            return self.call(_SAME[name], *terms)
        if name in _ROUNDING:
            return self.call(_ROUNDING[name], *terms) if self.dtype.kind == "f" else terms[0]
        if name in ("maximum", "minimum"):
            if self.dtype == BOOL:
                return self.call(_ON_BOOLEANS[name], *terms)
            return self.call("Max" if name == "maximum" else "Min", *terms)
        method: Callable[..., Term] | None = getattr(self, f"_{name}", None)
        if method is None:
            raise NotImplementedError(f"no ONNX for the function {name}")
        return method(*terms)

    def _cast(self, a: Term) -> Term:
        return a

    def _exp2(self, a: Term) -> Term:
        return self.call("Exp", self.call("Mul", a, self.number(math.log(2))))

    def _expm1(self, a: Term) -> Term:
        """Compute ``tanh(a / 2) * (exp(a) + 1)``, which is exact near 0 where ``exp(a) - 1`` is not."""
        half = self.call("Tanh", self.call("Mul", a, self.number(0.5)))
        return self.call("Mul", half, self.call("Add", self.call("Exp", a), self.number(1)))

    def _log2(self, a: Term) -> Term:
        return self.call("Mul", self.call("Log", a), self.number(1 / math.log(2)))

    def _log10(self, a: Term) -> Term:
        return self.call("Mul", self.call("Log", a), self.number(1 / math.log(10)))

    def _log1p(self, a: Term) -> Term:
        """Compute ``log(1 + a)``, corrected for the rounding of the sum."""
        total = self.call("Add", a, self.number(1))
        rounded = self.call("Log", total)
        lost = self.call("Sub", self.call("Sub", total, self.number(1)), a)
        near = self.call("Sub", rounded, self.call("Div", lost, total))
        return self.where(self.test("Less", self.call("Abs", a), self.number(0.5)), near, rounded)

    def _erfc(self, a: Term) -> Term:
        return self.call("Sub", self.number(1), self.call("Erf", a))

    def _pow(self, a: Term, b: Term) -> Term:
        return self.call("Pow", a, b)

    def _trunc(self, a: Term) -> Term:
        if self.dtype.kind != "f":
            return a
        return self.call("Mul", self.call("Sign", a), self.call("Floor", self.call("Abs", a)))

    def _isnan(self, a: Term) -> Term:
        return Term(self.b.call("Not", self.test("Equal", a, a).name), True)

    def _isinf(self, a: Term) -> Term:
        if self.dtype.kind != "f":
            return self._never(a)
        return self.test("Equal", self.call("Abs", a), self.number(math.inf))

    def _isfinite(self, a: Term) -> Term:
        if self.dtype.kind != "f":
            return Term(self.b.call("Not", self._never(a).name), True)
        return self.test("Less", self.call("Abs", a), self.number(math.inf))

    def _never(self, a: Term) -> Term:
        return Term(self.b.call("Not", self.test("Equal", a, a).name), True)

    def _signbit(self, a: Term) -> Term:
        below = self.test("Less", a, self.number(0))
        if self.dtype.kind != "f":
            return below
        inverse = self.test("Less", self.call("Div", self.number(1), a), self.number(0))
        return Term(self.b.call("Or", below.name, inverse.name), True)

    def _copysign(self, a: Term, b: Term) -> Term:
        size = self.call("Abs", a)
        return self.where(self._signbit(b), self.call("Neg", size), size)

    def _fmax(self, a: Term, b: Term) -> Term:
        return self._skipping_nan("Max", a, b)

    def _fmin(self, a: Term, b: Term) -> Term:
        return self._skipping_nan("Min", a, b)

    def _skipping_nan(self, operator: str, a: Term, b: Term) -> Term:
        both = self.call(operator, a, b)
        if self.dtype.kind != "f":
            return both
        return self.where(self._isnan(a), b, self.where(self._isnan(b), a, both))

    def _hypot(self, a: Term, b: Term) -> Term:
        one, other = self.call("Abs", a), self.call("Abs", b)
        large, small = self.call("Max", one, other), self.call("Min", one, other)
        ratio = self.call("Div", small, large)
        length = self.call("Sqrt", self.call("Add", self.call("Mul", ratio, ratio), self.number(1)))
        special = self.call("Mul", large, self.call("Sub", large, large))  # NaN where it is infinite
        alone = self.test("Equal", self.call("Sub", large, large), self.number(0))
        zero = self.test("Equal", large, self.number(0))
        plain = Term(self.b.call("And", alone.name, self.b.call("Not", zero.name)), True)
        rest = self.where(self._isnan(special), large, self.number(0))
        return self.where(plain, self.call("Mul", large, length), rest)

    def _atan2(self, a: Term, b: Term) -> Term:
        """Compute the angle of ``a / b``, shifted by pi where ``b`` is negative."""
        zero = self.test("Equal", b, self.number(0))
        angle = self.call("Atan", self.call("Div", a, b))
        rotated = self.call("Add", angle, self._copysign(self.number(math.pi), a))
        result = self.where(self._signbit(b), rotated, angle)
        upright = self._copysign(self.number(math.pi / 2), a)
        flat = self._copysign(self.where(self._signbit(b), self.number(math.pi), self.number(0)), a)
        at_zero = self.where(self.test("Equal", a, self.number(0)), flat, upright)
        return self.where(zero, at_zero, result)


_COMPUTE: dict[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Pow": lambda a, b: a**b,
}
