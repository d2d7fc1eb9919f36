"""Elementwise ops, by their expressions: operands take the shape of the result and one dtype first.

Floats of 16 bits are computed in float32 and rounded once, as tenon does.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_stablehlo.builder import BOOL, FLOAT32, FLOAT64, Builder, Value
from tenon_target_stablehlo.expressions import Translation
from tenon_target_stablehlo.forms import form, has_dtypes, is_float

#: Expressions of ops that declare none, in the same language.
_MORE = {"once": "a", "refused": "a"}


def expression_of(node: Node) -> str | None:
    """Return the expression of a call, or None if it has none."""
    if node.name in _MORE:
        return _MORE[node.name]
    avals = [a.aval if a.__class__ is Ref and not a.scalar else a for a in node.args]
    return node.op.expression_for(avals, node.attrs)


def wide(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which values of ``dtype`` are computed."""
    return FLOAT32 if dtype.name in ("float16", "bfloat16") else dtype


def common_dtype(node: Node) -> np.dtype:
    """Return the dtype in which a call computes: the common one of its arrays, or a wider one."""
    operands = node.args[node.op.promoted_from :]
    strong = [a.aval.dtype for a in operands if a.__class__ is Ref and not a.scalar]
    own: np.dtype = node.avals[0].dtype
    if not strong:
        return wide(own if own.kind != "b" else FLOAT64)
    common = strong[0] if len(set(strong)) == 1 else np.result_type(*strong)
    fraction = any(isinstance(a, float) or (a.__class__ is Ref and a.scalar) for a in operands)
    if fraction and common.kind in "iub":
        common = own if is_float(node) else FLOAT64
    if common.kind == "b" and (own.kind in "iu" or any(a.__class__ is int for a in operands)):
        common = own if own.kind in "iu" else np.dtype(np.int64)
    if common.kind in "biu" and own.kind in "fV" and not node.op.boolean:
        common = own  # a quotient of integers
    return wide(common)


def is_elementwise(node: Node) -> bool:
    """Whether a call can be written by its expression."""
    if node.op.view or len(node.avals) != 1 or not has_dtypes(node) or expression_of(node) is None:
        return False
    trial = Builder()
    trial.symbols = defaultdict(lambda: (Value("%x", FLOAT32, (1,)), 0))
    for ref in node.refs:
        trial.values[ref] = Value("%x", ref.aval.dtype, tuple(ref.aval.shape))
    try:
        write_expression(trial, node)
    except NotImplementedError:
        return False
    return True


def write_expression(b: Builder, node: Node) -> Value:
    """Write a call by its expression."""
    text = expression_of(node)
    assert text is not None
    dtype = common_dtype(node)
    names = dict(zip("abc", operands(b, node, dtype), strict=False))
    for name, value in {**node.op.defaults, **node.attrs}.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            names[name] = value
    present = {name: value for name, value in names.items() if value is not None}
    translation = Translation(b, dtype, node.avals[0].shape, present)
    return b.convert(translation.result(text), node.avals[0].dtype)


def operands(b: Builder, node: Node, dtype: np.dtype) -> list[Value | float | None]:
    """Return the arguments of a call: arrays in the shape of its result and in ``dtype``, and numbers."""
    shape = node.avals[0].shape
    result: list[Value | float | None] = []
    for position, a in enumerate(node.args):
        if a is None or is_plain(a):
            result.append(a)
            continue
        value = b.value(a)
        if position >= node.op.promoted_from:
            value = b.convert(value, dtype)
        result.append(b.broadcast(value, shape))
    return result


def is_plain(argument: Any) -> bool:  # of a call
    """Whether an argument is a number, not a value or a symbolic size."""
    return isinstance(argument, int | float | np.generic)


def _translation(b: Builder, node: Node) -> tuple[Translation, Value, Value]:
    """Return a translation in the dtype and shape of a binary call, and its two operands."""
    dtype = common_dtype(node)
    t = Translation(b, dtype, node.avals[0].shape, {})
    x, y = (t.numeric(a) for a in operands(b, node, dtype) if a is not None)
    return t, x, y


def _finished(b: Builder, node: Node, value: Value) -> Value:
    return b.convert(value, node.avals[0].dtype)


@form("cast")
def write_cast(b: Builder, node: Node) -> Value:
    """Write a cast; as booleans, all numbers but 0 are true."""
    return b.value(node.args[0], node.avals[0].dtype)


@form("remainder", "fmod", when=lambda node: common_dtype(node) != BOOL)
def write_remainder(b: Builder, node: Node) -> Value:
    """Write ``remainder``, whose sign is that of the dividend."""
    t, x, y = _translation(b, node)
    rest = t.binary("remainder", x, y)
    if node.name == "remainder" and t.dtype.kind != "u":
        other = b.compare("NE", t.test("LT", rest, 0), t.test("LT", y, 0))
        opposite = b.binary("and", other, t.test("NE", rest, 0))
        rest = t.where(opposite, t.binary("add", rest, y), rest)
    return _finished(b, node, rest)


@form("floor_divide", when=lambda node: common_dtype(node) != BOOL)
def write_floor_divide(b: Builder, node: Node) -> Value:
    """Round the quotient down."""
    t, x, y = _translation(b, node)
    quotient = t.binary("divide", x, y)
    if t.dtype.kind in "fV":
        return _finished(b, node, t.unary("floor", quotient))
    if t.dtype.kind == "u":
        return _finished(b, node, quotient)
    rest = t.binary("remainder", x, y)
    other = b.compare("NE", t.test("LT", rest, 0), t.test("LT", y, 0))
    low = b.binary("and", other, t.test("NE", rest, 0))
    return _finished(b, node, t.where(low, t.binary("subtract", quotient, 1), quotient))


@form("round")
def write_round(b: Builder, node: Node) -> Value:
    """Round halves to even; with ``decimals``, after scaling by a power of ten."""
    dtype, digits = common_dtype(node), node.attrs.get("decimals", 0)
    value = b.value(node.args[0], dtype)
    t = Translation(b, dtype, value.shape, {})
    if dtype.kind in "fV":
        scale = 10.0 ** abs(digits)
        before, after = ("multiply", "divide") if digits > 0 else ("divide", "multiply")
        value = t.binary(before, value, scale) if digits else value
        value = t.unary("round_nearest_even", value)
        value = t.binary(after, value, scale) if digits else value
    return _finished(b, node, value)


@form("xlogy", when=is_float)
def write_xlogy(b: Builder, node: Node) -> Value:
    """Write ``x * log(y)``, which is 0 where ``x`` is 0 and ``y`` is not NaN."""
    t, x, y = _translation(b, node)
    zero = b.binary("and", t.test("EQ", x, 0.0), t.test("EQ", y, y))
    return _finished(b, node, t.where(zero, 0.0, t.binary("multiply", x, t.unary("log", y))))


@form("whole_power", when=is_float)
def write_power(b: Builder, node: Node) -> Value:
    """Write ``power``."""
    t, x, y = _translation(b, node)
    return _finished(b, node, t.binary("power", x, y))


@form("sinc", when=is_float)
def write_sinc(b: Builder, node: Node) -> Value:
    """Write ``sin(pi x) / (pi x)``, which is 1 at 0."""
    dtype = common_dtype(node)
    value = b.value(node.args[0], dtype)
    t = Translation(b, dtype, value.shape, {})
    angle = t.binary("multiply", value, np.pi)
    zero = t.test("EQ", angle, 0.0)
    quotient = t.binary("divide", t.unary("sine", angle), t.where(zero, 1.0, angle))
    return _finished(b, node, t.where(zero, 1.0, quotient))


@form("bitwise_left_shift", "bitwise_right_shift", when=lambda node: node.avals[0].dtype.kind in "iu")
def write_shift(b: Builder, node: Node) -> Value:
    """Write a shift of bits; a right shift keeps the sign of signed integers."""
    t, x, y = _translation(b, node)
    right = "shift_right_arithmetic" if t.dtype.kind == "i" else "shift_right_logical"
    return _finished(b, node, t.binary("shift_left" if "left" in node.name else right, x, y))


def _supports_creation(node: Node) -> bool:
    value = node.attrs.get("value", 0)
    return is_plain(value) or hasattr(value, "symbols")


@form("new_full", "zeros_like", when=_supports_creation)
def write_full(b: Builder, node: Node) -> Value:
    """Write an array of one number."""
    aval, value = node.avals[0], node.attrs.get("value", 0)
    if is_plain(value):
        return b.full(value, aval.dtype, aval.shape)
    return b.broadcast(b.value(value, aval.dtype), aval.shape)


@form("copy")
def write_copy(b: Builder, node: Node) -> Value:
    """Convert and broadcast the second operand."""
    aval = node.avals[0]
    return b.broadcast(b.value(node.args[1], aval.dtype), aval.shape)
