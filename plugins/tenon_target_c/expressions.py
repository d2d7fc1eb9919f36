"""Translate the expressions of elementwise ops (``tenon.extend.expressions``) into C.

Everything is computed in one C type, that of the op's operands. Functions of float32 that C compilers cannot
vectorize are implemented in ``kernels/mathematics.h``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import numpy as np

from tenon.extend import expressions

_OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
#: Functions with an implementation of this target for floats; the others are C's.
_OWN = frozenset(
    {"exp", "log", "tanh", "sigmoid", "erf", "maximum", "minimum", "remainder", "erfinv", "digamma"}
)
#: Functions of integers in ``kernels/whole.c``.
_WHOLE = frozenset({"remainder", "fmod", "floor_divide", "power", "gcd", "lcm", "left_shift", "right_shift"})
_NAMES = {"abs": "fabs", "fmax": "fmax", "fmin": "fmin"}
_SAME_FOR_INTEGERS = frozenset({"floor", "ceil", "trunc", "rint"})


def translate(text: str, dtype: np.dtype, names: Mapping[str, str]) -> str:
    """Return ``text`` as C that computes in ``dtype``; ``names`` has the C text of operands and attrs."""
    return _Translator(dtype, names).translate(text)


class _Translator(expressions.Translator[str]):
    def __init__(self, dtype: np.dtype, names: Mapping[str, str]) -> None:
        self.dtype, self.names = dtype, names
        self.real = dtype.kind == "f"

    def number(self, value: float) -> str:
        return literal(value, self.dtype)

    def named(self, name: str) -> str:
        if name in self.names:
            return self.names[name]
        return literal(float(name), self.dtype)  # inf, nan

    def where(self, condition: str, one: str, other: str) -> str:
        return f"({condition} ? {one} : {other})"

    def comparison(self, op: ast.cmpop, left: str, right: str) -> str:
        return f"({left} {_OPERATORS[type(op)]} {right})"

    def binary_operator(self, op: ast.operator, left: str, right: str) -> str:
        sign = _OPERATORS[type(op)]
        if self.dtype.kind == "b" and sign in "+*":
            sign = "|" if sign == "+" else "&"
        elif self.dtype.kind == "i" and sign in "+-*" and self.dtype.itemsize >= 4:
            # Integers wrap around; in C only unsigned ones may.
            bits = self.dtype.itemsize * 8
            return f"(int{bits}_t)((uint{bits}_t){left} {sign} (uint{bits}_t){right})"
        return f"({left} {sign} {right})"

    def unary_operator(self, op: ast.unaryop, operand: str) -> str:
        if isinstance(op, ast.Invert):
            return f"(!{operand})" if self.dtype.kind == "b" else f"(~{operand})"
        if not self.real and self.dtype.itemsize >= 4:
            bits = self.dtype.itemsize * 8
            return f"(int{bits}_t)(0u - (uint{bits}_t){operand})"
        return f"(-{operand})"

    def function(self, name: str, *args: str) -> str:
        return call(name, args, self.dtype)


def call(name: str, args: Sequence[str], dtype: np.dtype) -> str:
    """Return the call of a function of the expression language."""
    x = args[0]
    if name in ("cast", "conj"):
        return x
    if dtype.kind != "f":
        return _integer_call(name, args, dtype)
    suffix = "f" if dtype.itemsize == 4 else ""
    if name == "isnan":
        return f"({x} != {x})"
    if name == "isinf":
        return f"(fabs{suffix}({x}) == INFINITY)"
    if name == "isfinite":
        return f"(fabs{suffix}({x}) < INFINITY)"
    if name == "signbit":
        return f"(signbit({x}) != 0)"
    if name in _OWN and not (name in ("exp", "log", "tanh", "erf") and dtype.itemsize == 8):
        return f"k_{name}{suffix}({', '.join(args)})"
    return f"{_NAMES.get(name, name)}{suffix}({', '.join(args)})"


def _integer_call(name: str, args: Sequence[str], dtype: np.dtype) -> str:
    x = args[0]
    if name in _SAME_FOR_INTEGERS:
        return x
    if name == "isnan" or name == "isinf":
        return "0"
    if name == "isfinite":
        return "1"
    if name == "signbit":
        return f"({x} < 0)"
    if name == "abs":
        return f"({x} < 0 ? -{x} : {x})"
    if name in ("maximum", "fmax"):
        return f"({x} > {args[1]} ? {x} : {args[1]})"
    if name in ("minimum", "fmin"):
        return f"({x} < {args[1]} ? {x} : {args[1]})"
    if name in _WHOLE:
        return f"({_C[dtype.name]})k_whole_{name}({', '.join(args)})"
    raise NotImplementedError(f"no C for {name} of {dtype}")


def literal(value: float, dtype: np.dtype) -> str:
    """Return the C literal of a Python number in ``dtype``."""
    if dtype.kind == "f":
        if value != value:
            return "NAN"
        number = float(dtype.type(value))
        if number in (float("inf"), -float("inf")):
            return "INFINITY" if number > 0 else "(-INFINITY)"
        text = repr(number) if dtype.itemsize == 8 else f"{_short(number, dtype)}f"
        return f"({text})" if number < 0 or text.startswith("-") else text
    number = int(value)
    if dtype.kind == "b":
        return str(int(bool(value)))
    if dtype.itemsize == 8:
        if number == -(1 << 63):
            return "INT64_MIN"
        return f"INT64_C({number})" if number >= 0 else f"(-INT64_C({-number}))"
    return str(number) if number >= 0 else f"({number})"


def _short(number: float, dtype: np.dtype) -> str:
    text = str(dtype.type(number))
    return text if "." in text or "e" in text else text + ".0"


def convert(text: str, source: np.dtype, target: np.dtype) -> str:
    """Return ``text`` of dtype ``source`` as C of dtype ``target``."""
    if source == target:
        return text
    if target.kind == "b":
        return f"({text} != 0)"
    if source.kind == "f" and target.kind in "iu":
        whole = f"k_whole({text})"
        return whole if target.itemsize == 8 else f"({_C[target.name]}){whole}"
    return f"({_C[target.name]}){text}"


_C = {
    "float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t", "int16": "int16_t",
    "int8": "int8_t", "uint8": "uint8_t", "bool": "uint8_t",
}  # fmt: skip
