"""Elementwise ops as NumPy, from their own expressions.

NumPy's rules for mixed dtypes differ from PyTorch's (int64 and float32 make float64 there, float32 here), so
operands are cast to the dtype in which the op computes; numbers take the dtype of the arrays in both.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from tenon.extend import Node, Op, Ref
from tenon_target_numpy.texts import dtype_text, number_text

#: Expressions of ops that do not declare one, in the same language.
MORE = {
    "once": "a",
    "to_device": "a",
    "remainder": "remainder(a, b)",
    "fmod": "fmod(a, b)",
    "floor_divide": "floor_divide(a, b)",
    "bitwise_left_shift": "left_shift(a, b)",
    "bitwise_right_shift": "right_shift(a, b)",
}
_NAMES = {
    "acos": "arccos", "asin": "arcsin", "atan": "arctan", "acosh": "arccosh", "asinh": "arcsinh",
    "atanh": "arctanh", "atan2": "arctan2", "pow": "power",
}  # fmt: skip
#: Functions of ``templates/mathematics.py``.
OWN = frozenset({"erf", "erfc", "sigmoid"})
_COMPARISONS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^",
}  # fmt: skip


def expression_of(node: Node) -> str | None:
    """Return the expression of a call, or None if it has none."""
    op: Op = node.op
    if op.name in MORE:
        return MORE[op.name]
    avals = [a.aval if a.__class__ is Ref and not a.scalar else a for a in node.args]
    return op.expression_for(avals, node.attrs)


def computed_dtype(node: Node) -> np.dtype:
    """Return the dtype to which the operands of a call are cast."""
    op: Op = node.op
    out_dtype: np.dtype = node.avals[0].dtype
    strong = [a.aval.dtype for a in node.args[op.promoted_from :] if a.__class__ is Ref and not a.scalar]
    if not op.boolean and op.name != "cast":
        return out_dtype
    if not strong:
        return np.dtype(np.float64)
    if len(set(strong)) == 1:
        common = strong[0]
    else:
        floats = [d for d in strong if d.kind == "f"]
        common = np.result_type(*(floats or strong))
    numbers = [a for a in node.args if a.__class__ is not Ref or a.scalar]
    fraction = any(a.__class__ is Ref or isinstance(a, float) for a in numbers)
    return np.dtype(np.float32) if fraction and common.kind in "iub" else common


def elementwise_text(node: Node, operands: Mapping[int, str], functions: set[str]) -> str | None:
    """Return the call as NumPy text, or None if it has no expression.

    ``operands`` has the text of each argument; names of functions that it needs are added to ``functions``.
    """
    expression = expression_of(node)
    if expression is None:
        return None
    dtype, target = computed_dtype(node), node.avals[0].dtype
    short = dtype.name == "float16" and expression not in (
        "a",
        "cast(a)",
    )  # rounded once, as generated code does
    working = np.dtype(np.float32) if short else dtype
    names: dict[str, str] = {}
    for letter, (position, a) in zip("abc", enumerate(node.args), strict=False):
        text = operands[position]
        is_array = a.__class__ is Ref and not a.scalar
        if is_array and position >= node.op.promoted_from and a.aval.dtype != working:
            text = f"{text}.astype({dtype_text(working)})"
        names[letter] = text
    for name, value in {**node.op.defaults, **node.attrs}.items():
        if isinstance(value, int | float):
            names.setdefault(name, number_text(value))
    translator = _Translator(names)
    result = translator.text(ast.parse(expression, mode="eval").body, outermost=True)
    functions |= translator.functions
    if node.name == "cast":
        return f"{names['a']}.astype({dtype_text(target)})" if target != working else result
    arrays = any(a.__class__ is Ref and not a.scalar for a in node.args[node.op.promoted_from :])
    if short or translator.selects or not arrays:
        kind = dtype_text(np.dtype(np.bool_) if node.op.boolean else target)
        return f"np.asarray({result}, {kind})"
    return result


class _Translator:
    """Writes an expression over operands as NumPy text."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.functions: set[str] = set()
        #: Whether a selection may have another dtype than its operands.
        self.selects = False

    def text(self, node: ast.expr, outermost: bool = False) -> str:
        """Return the text of ``node``, in parentheses unless it is ``outermost`` or one operand."""
        if isinstance(node, ast.Constant):
            return number_text(node.value)
        if isinstance(node, ast.Name):
            known = {"inf": "np.inf", "nan": "np.nan"}
            return self.names[node.id] if node.id in self.names else known[node.id]
        if isinstance(node, ast.IfExp):
            self.selects = True
            parts = [self.text(part, True) for part in (node.test, node.body, node.orelse)]
            return f"np.where({', '.join(parts)})"
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Compare):
            sign = _COMPARISONS[type(node.ops[0])]
            result = f"{self.text(node.left)} {sign} {self.text(node.comparators[0])}"
        elif isinstance(node, ast.BinOp):
            result = f"{self.text(node.left)} {_OPERATORS[type(node.op)]} {self.text(node.right)}"
        elif isinstance(node, ast.UnaryOp):
            result = f"{'~' if isinstance(node.op, ast.Invert) else '-'}{self.text(node.operand)}"
        else:
            raise NotImplementedError(f"no NumPy for {ast.dump(node)}")
        return result if outermost else f"({result})"

    def _call(self, node: ast.Call) -> str:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        args = ", ".join(self.text(a, True) for a in node.args)
        if name == "cast":
            return self.text(node.args[0])
        if name in OWN:
            self.functions.add(name)
            return f"{name}({args})"
        return f"np.{_NAMES.get(name, name)}({args})"
