"""Emit formulas such as ``"a * sigmoid(a)"`` as LLVM instructions on one element.

The language is that of ``tenon.kernels.expressions`` (with the statements of ``mathlib.py``), parsed by
Python's own parser. Numbers stay Python numbers until they are combined with a value, whose type they take.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon.extend import errors
from tenon_cpu.jit.emission import mathlib
from tenon_cpu.jit.emission.functions import BOOL, TYPES, Code, Operand, Type, Val, constant

_INT32, _FLOAT32 = TYPES["int32"], TYPES["float32"]
_FLOAT: dict[type, str] = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_INTEGER: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
    ast.LShift: "shl", ast.RShift: "ashr",
}  # fmt: skip
_COMPARE: dict[type, tuple[str, str]] = {
    ast.Eq: ("oeq", "eq"), ast.NotEq: ("une", "ne"), ast.Lt: ("olt", "lt"), ast.LtE: ("ole", "le"),
    ast.Gt: ("ogt", "gt"), ast.GtE: ("oge", "ge"),
}  # fmt: skip
_INTRINSIC = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "nearbyint"}
_STRICT: dict[type, type] = {ast.GtE: ast.Gt, ast.LtE: ast.Lt}


@functools.cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text.strip())


class Formula:
    """Emits formulas into ``code``, computing in ``type``."""

    def __init__(self, code: Code, type: Type) -> None:
        self.code = code
        self.type = type
        #: The values, numbers and attrs that the formula names.
        self.names: dict[str, Any] = {}
        #: Whether only explicit ``fma`` calls are fused multiply-adds: LLVM may not make them of ``a * b +
        #: c``.
        self.plain = False

    def run(self, text: str, names: Mapping[str, object]) -> Val:
        """Emit ``text``, in which ``names`` are values, numbers or attrs of the op; return its value."""
        self.names = {"inf": float("inf"), "nan": float("nan"), **names}
        result: Operand = 0.0
        for line in _parsed(text).body:
            if isinstance(line, ast.Assign):
                target = line.targets[0]
                assert isinstance(target, ast.Name)
                self.names[target.id] = self.value(line.value)
            elif isinstance(line, (ast.Return, ast.Expr)) and line.value is not None:
                result = self.value(line.value)
        return result if isinstance(result, Val) else Val(constant(result, self.type), self.type)

    def value(self, node: ast.expr) -> Operand:
        """Emit an expression; ArgumentError if it is not of the language."""
        if isinstance(node, ast.Constant):
            number: float = node.value  # type: ignore[assignment]
            return number
        if isinstance(node, ast.Name):
            name: Operand = self.names[node.id]
            return name
        if isinstance(node, ast.UnaryOp):
            return self._unary(node.op, self.value(node.operand))
        if isinstance(node, ast.BinOp):
            return self._binary(type(node.op), self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Compare):
            return self._compare(type(node.ops[0]), self.value(node.left), self.value(node.comparators[0]))
        if isinstance(node, ast.IfExp):
            return self._select(
                self.truth(self.value(node.test)), self.value(node.body), self.value(node.orelse)
            )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node.func.id, [self.value(a) for a in node.args])
        raise errors.ArgumentError(f"no code for {ast.unparse(node)!r} in a formula.")

    # --- operators ---

    @property
    def _flags(self) -> str:
        return "" if self.plain else self.code.flags

    def _pair(self, a: Operand, b: Operand) -> tuple[Val, Val]:
        """Convert both operands to their common type."""
        kind = a.type if isinstance(a, Val) else b.type if isinstance(b, Val) else self.type
        if isinstance(a, Val) and isinstance(b, Val) and a.type.reg != b.type.reg:
            kind = self.type
        return self.typed(a, kind), self.typed(b, kind)

    def typed(self, v: Operand, to: Type) -> Val:
        """Convert ``v`` to a value of the type ``to``."""
        return convert(self.code, v, to) if isinstance(v, Val) else Val(constant(v, to), to)

    def truth(self, v: Operand) -> Val:
        """Emit ``v != 0``."""
        if not isinstance(v, Val):
            return Val("true" if v else "false", BOOL)
        return v if v.type.kind == "b" else self._compare(ast.NotEq, v, 0)

    def _unary(self, op: ast.unaryop, v: Operand) -> Operand:
        if not isinstance(v, Val):
            return -v if isinstance(op, ast.USub) else not v if isinstance(op, ast.Not) else ~int(v)
        if isinstance(op, ast.Not):
            return Val(self.code.let(f"xor i1 {self.truth(v).text}, true"), BOOL)
        if isinstance(op, ast.Invert):
            return Val(
                self.code.let(f"xor {v.type.reg} {v.text}, {'true' if v.type.kind == 'b' else -1}"), v.type
            )
        if v.type.kind == "f":
            return Val(self.code.let(f"fneg {v.type.reg} {v.text}"), v.type)
        return Val(self.code.let(f"sub {v.type.reg} 0, {v.text}"), v.type)

    def _binary(self, op: type, a: Operand, b: Operand) -> Operand:
        if not isinstance(a, Val) and not isinstance(b, Val):
            return _fold(op, a, b)
        x, y = self._pair(a, b)
        kind = x.type
        if kind.kind == "f" and op in _FLOAT:
            return Val(self.code.let(f"{_FLOAT[op]} {self._flags}{kind.reg} {x.text}, {y.text}"), kind)
        if kind.kind == "b" and op in (ast.Add, ast.Mult):
            op = ast.BitOr if op is ast.Add else ast.BitAnd
        word = _INTEGER.get(op)
        if (
            word is None
            or kind.kind == "f"
            or (kind.kind == "b" and op not in (ast.BitAnd, ast.BitOr, ast.BitXor))
        ):
            raise errors.NotFusableError(f"no code for {op.__name__} of {kind.name}.")
        if word == "ashr" and kind.kind == "u":
            word = "lshr"
        return Val(self.code.let(f"{word} {kind.reg} {x.text}, {y.text}"), kind)

    def _compare(self, op: type, a: Operand, b: Operand) -> Val:
        x, y = self._pair(a, b)
        real, integer = _COMPARE[op]
        if x.type.kind == "f":
            return Val(self.code.let(f"fcmp {real} {x.type.reg} {x.text}, {y.text}"), BOOL)
        if integer not in ("eq", "ne"):
            integer = ("s" if x.type.kind == "i" else "u") + integer
        return Val(self.code.let(f"icmp {integer} {x.type.reg} {x.text}, {y.text}"), BOOL)

    def _select(self, condition: Val, a: Operand, b: Operand) -> Val:
        x, y = map(self._hidden, self._pair(a, b))
        reg = x.type.reg
        return Val(self.code.let(f"select i1 {condition.text}, {reg} {x.text}, {reg} {y.text}"), x.type)

    def _hidden(self, v: Val) -> Val:
        """``v``, loaded from a global variable if it is an infinite constant.

        LLVM turns the selection of a constant -inf into a branch, which is not vectorised: the maximum of
        masked scores was 25 times slower.
        """
        reg = v.type.reg
        if v.type.kind != "f" or v.text not in (constant(math.inf, v.type), constant(-math.inf, v.type)):
            return v
        name = f"@far_{v.text}_{reg}"
        self.code.declared[name] = f"{name} = global {reg} {v.text}"
        return Val(self.code.let(f"load {reg}, ptr {name}"), v.type)

    # --- functions ---

    def _call(self, name: str, args: list[Operand]) -> Operand:
        special: Callable[..., Operand] | None = getattr(self, f"_fn_{name}", None)
        if special is not None:
            return special(*args)
        values = [self.typed(a, self.type) for a in args]
        kind = values[0].type
        if name == "abs":
            return self._abs(values[0])
        if kind.kind != "f":
            if name in _INTRINSIC and name != "sqrt":
                return values[0]
            raise errors.NotFusableError(f"no code for {name} of {kind.name}.")
        if name in _INTRINSIC:
            return self._intrinsic(_INTRINSIC[name], *values)
        if name == "copysign":
            return self._intrinsic("copysign", *values)
        formula = mathlib.FORMULAS.get(name) if kind.reg == "float" else mathlib.WIDE.get(name)
        if kind.bits == 16:
            formula = mathlib.SHORT.get(name, formula)
        if formula is not None:
            inner = Formula(self.code, TYPES[kind.name] if kind.reg == "double" else _FLOAT32)
            inner.plain = True
            operands = {letter: Val(v.text, inner.type) for letter, v in zip("xy", values, strict=False)}
            return Val(inner.run(formula, operands).text, kind)
        if name in mathlib.LIBRARY:
            own = name + ("f" if kind.reg == "float" else "")
            return Val(self.code.call(own, kind.reg, *values), kind)
        raise errors.NotFusableError(f"no code for the function {name}.")

    def _intrinsic(self, name: str, *values: Val) -> Val:
        kind = values[0].type
        suffix = "f32" if kind.reg == "float" else "f64"
        return Val(self.code.call(f"llvm.{name}.{suffix}", kind.reg, *values), kind)

    def _abs(self, x: Val) -> Val:
        if x.type.kind == "f":
            return self._intrinsic("fabs", x)
        return (
            x
            if x.type.kind in "ub"
            else self._select(self._compare(ast.Lt, x, 0), self._unary(ast.USub(), x), x)
        )

    def _extreme(self, op: type, a: Operand, b: Operand, nan: bool) -> Val:
        """``a`` where ``a op b`` holds, else ``b``; if one is NaN, that one with ``nan``, else the other."""
        x, y = self._pair(a, b)
        if not nan and x.type.name == "bfloat16":  # of two zeros PyTorch returns the second
            op = _STRICT[op]
        first = self._compare(op, x, y)
        if x.type.kind == "f":
            tested = x if nan else y
            odd = self.code.let(f"fcmp uno {x.type.reg} {tested.text}, {tested.text}")
            first = Val(self.code.let(f"or i1 {first.text}, {odd}"), BOOL)
        return self._select(first, x, y)

    def _fn_maximum(self, a: Operand, b: Operand) -> Val:
        return self._extreme(ast.GtE, a, b, nan=True)

    def _fn_minimum(self, a: Operand, b: Operand) -> Val:
        return self._extreme(ast.LtE, a, b, nan=True)

    def _fn_fmax(self, a: Operand, b: Operand) -> Val:
        return self._extreme(ast.GtE, a, b, nan=False)

    def _fn_fmin(self, a: Operand, b: Operand) -> Val:
        return self._extreme(ast.LtE, a, b, nan=False)

    def _fn_isnan(self, a: Val) -> Val:
        return self._compare(ast.NotEq, a, a) if a.type.kind == "f" else Val("false", BOOL)

    def _fn_isinf(self, a: Val) -> Val:
        return self._compare(ast.Eq, self._abs(a), float("inf")) if a.type.kind == "f" else Val("false", BOOL)

    def _fn_isfinite(self, a: Val) -> Val:
        return self._compare(ast.Lt, self._abs(a), float("inf")) if a.type.kind == "f" else Val("true", BOOL)

    def _fn_signbit(self, a: Val) -> Val:
        if a.type.kind != "f":
            return self._compare(ast.Lt, a, 0)
        integer = TYPES["int32" if a.type.reg == "float" else "int64"]
        return self._compare(
            ast.Lt, Val(self.code.let(f"bitcast {a.type.reg} {a.text} to {integer.reg}"), integer), 0
        )

    def _fn_cast(self, a: Operand) -> Val:
        return self.typed(a, self.type)

    def _fn_fma(self, a: Operand, b: Operand, c: Operand) -> Operand:
        x, y, z = (self.typed(v, self.type) for v in (a, b, c))
        if self.code.fma:
            return self._intrinsic("fma", x, y, z)
        return self._binary(ast.Add, self._binary(ast.Mult, x, y), z)

    def _fn_poly(self, x: Operand, *coefficients: float) -> Operand:
        result: Operand = coefficients[-1]
        for c in coefficients[-2::-1]:
            result = self._fn_fma(result, x, c)
        return result

    def _fn_hypot(self, a: Operand, b: Operand) -> Val:
        """Float32's squares are exact in float64, and do not overflow there."""
        x, y = (self.typed(v, self.type) for v in (a, b))
        kind, wide = x.type, TYPES["float64"]
        if kind.reg != "float":
            return Val(self.code.call("hypot", kind.reg, x, y), kind)
        inner = Formula(self.code, wide)
        inner.plain = True
        operands = {"x": convert(self.code, x, wide), "y": convert(self.code, y, wide)}
        root = inner.run("sqrt(x * x + y * y)", operands)
        infinite = self._compare(ast.Eq, self._fn_fmax(self._abs(x), self._abs(y)), math.inf)
        narrow = Val(self.code.let(f"fptrunc double {root.text} to float"), kind)
        return self._select(infinite, math.inf, narrow)

    def _fn_bits(self, x: Val) -> Val:
        return Val(self.code.let(f"bitcast float {x.text} to i32"), _INT32)

    def _fn_real_of_bits(self, i: Val) -> Val:
        return Val(self.code.let(f"bitcast i32 {i.text} to float"), _FLOAT32)

    def _fn_real(self, i: Val) -> Val:
        return Val(self.code.let(f"sitofp i32 {i.text} to float"), _FLOAT32)


def _fold(op: type, a: float, b: float) -> float:
    """The result of an operator on two numbers."""
    if op is ast.Add:
        return a + b
    if op is ast.Sub:
        return a - b
    if op is ast.Mult:
        return a * b
    if op is ast.Div and b:
        return a / b
    raise errors.NotFusableError(f"no code for {op.__name__} of two numbers.")


def convert(code: Code, v: Val, to: Type) -> Val:
    """``v`` in another type, by the rules of C's casts; a boolean is ``v != 0``."""
    a, b = v.type, to
    if a.reg == b.reg:
        return Val(_rounded(code, v.text, to) if a.bits > b.bits else v.text, to)
    if b.kind == "b":
        text = code.let(
            f"fcmp une {a.reg} {v.text}, 0.0" if a.kind == "f" else f"icmp ne {a.reg} {v.text}, 0"
        )
    elif a.kind == "f" and b.kind == "f":
        text = code.let(f"{'fpext' if a.reg == 'float' else 'fptrunc'} {a.reg} {v.text} to {b.reg}")
    elif b.kind == "f":
        text = code.let(f"{'sitofp' if a.kind == 'i' else 'uitofp'} {a.reg} {v.text} to {b.reg}")
    elif a.kind == "f":
        text = code.let(f"{'fptosi' if b.kind == 'i' else 'fptoui'} {a.reg} {v.text} to {b.reg}")
        text = code.let(f"freeze {b.reg} {text}")
    elif a.kind == "b" or b.bits > a.bits:
        text = code.let(f"{'sext' if a.kind == 'i' else 'zext'} {a.reg} {v.text} to {b.reg}")
    else:
        text = code.let(f"trunc {a.reg} {v.text} to {b.reg}")
    return Val(text, to)


def short_number(code: Code, v: Operand, to: Type) -> Operand:
    """``v`` in ``to``, of 16 bits, to which numbers are rounded, as they are where an op runs alone."""
    if not isinstance(v, Val):
        with np.errstate(over="ignore"):
            return v if v.__class__ is bool else float(np.dtype(to.name).type(v))
    value = convert(code, v, to)
    return Val(_rounded(code, value.text, to), to) if v.type.bits == 64 else value


def _rounded(code: Code, text: str, to: Type) -> str:
    """A float32, rounded to the digits of a 16-bit float."""
    variable = code.variable(to)
    code.store(Val(text, to), variable)
    return code.load(variable, to).text
