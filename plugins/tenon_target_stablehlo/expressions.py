"""Expressions of elementwise ops (``tenon.extend.expressions``) as StableHLO operations.

All numbers of an expression have one dtype and all values one shape; a comparison gives a boolean.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tenon.extend import expressions
from tenon_target_stablehlo import mathematics
from tenon_target_stablehlo.builder import BOOL, Builder, Value
from tenon_target_stablehlo.sizes import Size

#: Functions that are operations of the same meaning.
_SAME = {
    "exp": "exponential", "log": "log", "sin": "sine", "cos": "cosine", "tanh": "tanh", "sigmoid": "logistic",
    "sqrt": "sqrt", "expm1": "exponential_minus_one", "log1p": "log_plus_one",
}  # fmt: skip
_ROUNDING = {"floor": "floor", "ceil": "ceil", "rint": "round_nearest_even"}
_ARITHMETIC = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "power",
}  # fmt: skip
_LOGIC = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
_COMPARISONS = {
    ast.Eq: "EQ", ast.NotEq: "NE", ast.Lt: "LT", ast.Gt: "GT", ast.LtE: "LE", ast.GtE: "GE",
}  # fmt: skip
_COMPUTE: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "power": lambda a, b: a**b,
}


class Translation(expressions.Translator["Value | float"]):
    """Adds the operations of expressions over operands that are of ``dtype`` and ``shape``."""

    def __init__(
        self, builder: Builder, dtype: np.dtype, shape: Sequence[Size], operands: Mapping[str, Value | float]
    ) -> None:
        self.b, self.dtype, self.shape, self.operands = builder, dtype, tuple(shape), operands

    def result(self, text: str) -> Value:
        """Return the value of an expression, in ``dtype`` or a boolean."""
        value = self.translate(text)
        return value if isinstance(value, Value) else self.numeric(value)

    def numeric(self, term: Value | float) -> Value:
        """Return a term in ``dtype``."""
        if not isinstance(term, Value):
            return self.b.full(term, self.dtype, self.shape)
        return self.b.convert(term, self.dtype)

    def condition(self, term: Value | float) -> Value:
        """Return a term as a boolean."""
        return self.b.convert(term if isinstance(term, Value) else self.numeric(term), BOOL)

    def unary(self, operation: str, term: Value | float) -> Value:
        """Add an operation on a number."""
        return self.b.unary(operation, self.numeric(term))

    def binary(self, operation: str, one: Value | float, other: Value | float) -> Value:
        """Add an operation on two numbers."""
        return self.b.binary(operation, self.numeric(one), self.numeric(other))

    def test(self, direction: str, one: Value | float, other: Value | float) -> Value:
        """Add a comparison."""
        return self.b.compare(direction, self.numeric(one), self.numeric(other))

    def where(self, condition: Value | float, one: Value | float, other: Value | float) -> Value:
        """Add a selection; of booleans if both are."""
        chosen = self.condition(condition)
        both = all(isinstance(t, Value) and t.dtype == BOOL for t in (one, other))
        one, other = (self.condition(t) if both else self.numeric(t) for t in (one, other))
        return self.b.select(chosen, one, other)

    # --- syntax ---

    def number(self, value: float) -> float:
        """Return a number, which becomes a value where an operation needs one."""
        return value

    def named(self, name: str) -> Value | float:
        """Return an operand or attr, or a number."""
        if name not in self.operands and name not in ("inf", "nan"):
            raise NotImplementedError(f"no StableHLO for the name {name}")
        return self.operands[name] if name in self.operands else float(name)

    def binary_operator(self, op: ast.operator, left: Value | float, right: Value | float) -> Value | float:
        """Add an operator of numbers or booleans; compute it if both operands are numbers."""
        if type(op) in _LOGIC:
            if all(isinstance(t, Value) and t.dtype == BOOL for t in (left, right)):
                return self.b.binary(_LOGIC[type(op)], self.condition(left), self.condition(right))
            if self.dtype.kind not in "iub":
                raise NotImplementedError(f"no StableHLO for bits of {self.dtype}")
            return self.binary(_LOGIC[type(op)], left, right)
        operation = _ARITHMETIC.get(type(op))
        if operation is None or (self.dtype == BOOL and operation not in ("add", "multiply")):
            raise NotImplementedError(f"no StableHLO for {type(op).__name__} of {self.dtype}")
        if not isinstance(left, Value) and not isinstance(right, Value):
            return _COMPUTE[operation](left, right)
        return self.binary(operation, left, right)

    def unary_operator(self, op: ast.unaryop, term: Value | float) -> Value | float:
        """Add a negation or an inversion."""
        if isinstance(op, ast.Invert):
            if isinstance(term, Value) and term.dtype == BOOL:
                return self.b.unary("not", term)
            if self.dtype.kind not in "iub":
                raise NotImplementedError(f"no StableHLO for bits of {self.dtype}")
            return self.unary("not", term)
        if isinstance(op, ast.USub) and self.dtype != BOOL:
            return self.unary("negate", term) if isinstance(term, Value) else -term
        raise NotImplementedError(f"no StableHLO for {type(op).__name__} of {self.dtype}")

    def comparison(self, op: ast.cmpop, left: Value | float, right: Value | float) -> Value:
        """Add a comparison, which gives a boolean."""
        return self.test(_COMPARISONS[type(op)], left, right)

    # --- functions ---

    def function(self, name: str, *terms: Value | float) -> Value | float:
        """Add the operations of a function of the expression language."""
        floats = self.dtype.kind in "fV"
        if name == "cast":
            return terms[0]
        if name in _ROUNDING or name == "trunc":
            return terms[0] if not floats else self._rounded(name, terms[0])
        if name in ("maximum", "minimum"):
            return self.binary(name, *terms)
        if name == "pow":
            return self.binary("power", *terms)
        if name == "abs":
            return terms[0] if self.dtype.kind in "ub" else self.unary("abs", terms[0])
        if name in ("isnan", "isinf", "isfinite", "signbit") and not floats:
            return self._of_integers(name, terms[0])
        if name in _SAME and floats:
            return self.unary(_SAME[name], terms[0])
        function = mathematics.FUNCTIONS.get(name)
        if function is None or not (floats or name in ("fmax", "fmin")):
            raise NotImplementedError(f"no StableHLO for the function {name} of {self.dtype}")
        return function(self, *map(self.numeric, terms))

    def _rounded(self, name: str, term: Value | float) -> Value:
        if name != "trunc":
            return self.unary(_ROUNDING[name], term)
        magnitude = self.unary("floor", self.unary("abs", term))
        return self.binary("multiply", self.unary("sign", term), magnitude)

    def _of_integers(self, name: str, term: Value | float) -> Value:
        if name == "signbit":
            return self.test("LT", term, 0)
        return self.test("EQ" if name == "isfinite" else "NE", term, term)
