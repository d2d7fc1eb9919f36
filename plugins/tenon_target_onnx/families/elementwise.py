"""Elementwise ops: by an operator of the same meaning, else by the op's expression.

Integers of fewer than 32 bits and floats of 16 bits are computed in a wider dtype, as runtimes have few
operators for them; like in tenon, the result is rounded once.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_onnx.builder import BOOL, FLOAT32, Builder
from tenon_target_onnx.expressions import Term, Translation
from tenon_target_onnx.forms import alone, form, has_dtypes, is_float
from tenon_target_onnx.sizes import are_numbers

#: Expressions of ops that do not declare one, in the same language.
_MORE = {"once": "a", "refused": "a"}
_WIDER = {
    "int8": np.int32, "uint8": np.int32, "int16": np.int32, "uint16": np.int32, "uint32": np.int64,
    "uint64": np.int64, "float16": np.float32, "bfloat16": np.float32,
}  # fmt: skip


def expression_of(node: Node) -> str | None:
    """Return the expression of a call, or None if it has none."""
    if node.name in _MORE:
        return _MORE[node.name]
    avals = [a.aval if a.__class__ is Ref and not a.scalar else a for a in node.args]
    return node.op.expression_for(avals, node.attrs)


def common_dtype(node: Node) -> np.dtype:
    """Return the dtype in which a call computes: the common one of its arrays, or a wider one."""
    operands = node.args[node.op.promoted_from :]
    strong = [a.aval.dtype for a in operands if a.__class__ is Ref and not a.scalar]
    own: np.dtype = node.avals[0].dtype
    if not strong:
        common = own if own.kind != "b" else np.dtype(np.float64)
    else:
        common = strong[0] if len(set(strong)) == 1 else np.result_type(*strong)
    fraction = any(isinstance(a, float) for a in operands)
    if fraction and common.kind in "iub":
        common = own if own.name in ("float32", "float64", "float16", "bfloat16") else np.dtype(np.float64)
    if common.kind == "b" and own.kind in "iu":
        common = own
    if common.kind in "biu" and own.kind in "fV" and not node.op.boolean:
        common = own  # a quotient of integers
    return wide(common)


def wide(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which values of ``dtype`` are computed."""
    return np.dtype(_WIDER.get(dtype.name, dtype))


def is_elementwise(node: Node, opset: int) -> bool:
    """Whether a call can be written by its expression."""
    if node.op.view or len(node.avals) != 1 or not has_dtypes(node):
        return False
    text = expression_of(node)
    if text is None:
        return False
    trial = Builder(opset)
    trial.symbols = defaultdict(lambda: ("x", 0))
    for position, ref in enumerate(node.refs):
        if ref.scalar:
            return False
        trial.names[ref] = f"x{position}"
    try:
        write_expression(trial, node)
    except NotImplementedError:
        return False
    return True


def write_expression(b: Builder, node: Node) -> str:
    """Write a call by its expression."""
    text = expression_of(node)
    assert text is not None
    return by_expression(b, node, text)


def by_expression(b: Builder, node: Node, text: str) -> str:
    """Write a call by an expression."""
    dtype = common_dtype(node)
    names: dict[str, Term] = {}
    for position, (letter, a) in enumerate(zip("abc", node.args, strict=False)):
        if a is None:
            continue
        if a.__class__ is not Ref:
            names[letter] = Term(number=a) if is_plain(a) else Term(b.value(a, dtype))
        elif position < node.op.promoted_from and a.aval.dtype == BOOL:
            names[letter] = Term(b.value(a), True)
        else:
            names[letter] = Term(b.value(a, dtype), dtype == BOOL)
    for name, value in {**node.op.defaults, **node.attrs}.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            names[name] = Term(number=value)
    return finished(b, node, Translation(b, dtype, names).translate(text), dtype)


def finished(b: Builder, node: Node, term: Term, dtype: np.dtype) -> str:
    """Return a result in the dtype and shape of the call."""
    own = node.avals[0].dtype
    if term.number is not None:
        name = b.constant(term.number, own)
        term = Term(b.call("Expand", name, b.shape(node.avals[0].shape)), own == BOOL)
        dtype = own
    term_dtype = BOOL if term.boolean else dtype
    name = term.name if term_dtype == own else b.cast(term.name, own)
    operands = [r for r in node.refs if r.aval.shape == node.avals[0].shape]
    widest = max((len(r.aval.shape) for r in node.refs), default=0)
    if not operands and (len(node.refs) < 2 or widest < len(node.avals[0].shape)):
        name = b.call("Expand", name, b.shape(node.avals[0].shape))
    return name


def is_plain(argument: Any) -> bool:  # of a call
    """Whether an argument is a number, not a value or a symbolic size."""
    return isinstance(argument, int | float | np.generic)


def _translation(b: Builder, node: Node) -> tuple[Translation, list[Term], np.dtype]:
    """Return the translation of a call of two operands, and the operands."""
    dtype = common_dtype(node)
    terms = [Term(number=a) if is_plain(a) else Term(b.value(a, dtype)) for a in node.args]
    return Translation(b, dtype, {}), terms, dtype


@form("cast")
def write_cast(b: Builder, node: Node) -> str:
    """Write a cast; as a boolean, a number is true unless it is 0."""
    return b.cast(b.value(node.args[0]), node.avals[0].dtype)


@form("relu", when=lambda node: node.avals[0].dtype.name in ("float16", "float32", "float64"))
def write_relu(b: Builder, node: Node) -> str:
    """Write ``Relu``."""
    return b.call("Relu", b.value(node.args[0]))


@form("isnan", "isinf", when=lambda node: node.args[0].aval.dtype.name in ("float32", "float64"))
def write_test(b: Builder, node: Node) -> str:
    """Write the operator."""
    return b.call("IsNaN" if node.name == "isnan" else "IsInf", b.value(node.args[0]))


@form("logical_and", "logical_or", "logical_xor")
def write_logic(b: Builder, node: Node) -> str:
    """Write the operator on booleans."""
    names = [b.value(a, BOOL) if a.__class__ is Ref else b.constant(bool(a), BOOL) for a in node.args]
    return b.call({"and": "And", "or": "Or", "xor": "Xor"}[node.name.removeprefix("logical_")], *names)


@form("logical_not")
def write_not(b: Builder, node: Node) -> str:
    """Write ``Not``."""
    return b.call("Not", b.value(node.args[0], BOOL))


def _supports_clamp(node: Node) -> bool:
    return node.avals[0].dtype.kind != "b" and not any(r.scalar for r in node.refs)


@form("clamp", "hardtanh", when=_supports_clamp)
def write_clamp(b: Builder, node: Node) -> str:
    """Write ``Clip`` for numbers, else a maximum and a minimum."""
    low, high = node.args[1:] if node.name == "clamp" else (node.attrs["low"], node.attrs["high"])
    own = node.avals[0].dtype
    dtype = wide(own)
    name = b.value(node.args[0], dtype)
    numbers = [v for v in (low, high) if v is not None and v.__class__ is not Ref]
    if dtype.kind == "f" and len(numbers) == 2 and low <= high:
        name = b.call("Clip", name, b.constant(low, dtype), b.constant(high, dtype))
    else:
        name = name if low is None else b.call("Max", name, b.value(low, dtype))
        name = name if high is None else b.call("Min", name, b.value(high, dtype))
    return finished(b, node, Term(name), dtype)


@form("remainder", "fmod")
def write_remainder(b: Builder, node: Node) -> str:
    """Write ``Mod``, whose sign for floats is that of the dividend."""
    t, (x, y), dtype = _translation(b, node)
    if dtype.kind != "f":
        name = b.call("Mod", t.numeric(x), t.numeric(y), fmod=int(node.name == "fmod"))
        return finished(b, node, Term(name), dtype)
    rest = Term(b.call("Mod", t.numeric(x), t.numeric(y), fmod=1))
    if node.name == "remainder":
        opposite = t.test("Less", t.call("Mul", t.call("Sign", rest), t.call("Sign", y)), t.number(0))
        rest = t.where(opposite, t.call("Add", rest, y), rest)
    return finished(b, node, rest, dtype)


@form("floor_divide")
def write_floor_divide(b: Builder, node: Node) -> str:
    """Round the quotient down."""
    t, (x, y), dtype = _translation(b, node)
    if dtype.kind == "f":
        return finished(b, node, t.call("Floor", t.call("Div", x, y)), dtype)
    rest = Term(b.call("Mod", t.numeric(x), t.numeric(y)))
    return finished(b, node, t.call("Div", t.call("Sub", x, rest), y), dtype)


@form("round")
def write_round(b: Builder, node: Node) -> str:
    """Round to even, after a multiplication if decimals are kept."""
    dtype = common_dtype(node)
    t, digits = Translation(b, dtype, {}), node.attrs.get("decimals", 0)
    term = Term(b.value(node.args[0], dtype))
    if dtype.kind == "f":
        scale = t.number(10.0 ** abs(digits))
        before, after = ("Mul", "Div") if digits > 0 else ("Div", "Mul")
        term = t.call(before, term, scale) if digits else term
        term = t.call("Round", term)
        term = t.call(after, term, scale) if digits else term
    return finished(b, node, term, dtype)


@form("xlogy", when=is_float)
def write_xlogy(b: Builder, node: Node) -> str:
    """Multiply by a logarithm; 0 where the factor is 0 and the other is no NaN."""
    t, (x, y), dtype = _translation(b, node)
    zero = t.test("Equal", x, t.number(0))
    number = b.call("Not", t._isnan(y).name)
    product = t.call("Mul", x, t.call("Log", y))
    term = t.where(Term(b.call("And", zero.name, number), True), t.number(0), product)
    return finished(b, node, term, dtype)


@form("whole_power", when=is_float)
def write_power(b: Builder, node: Node) -> str:
    """Write ``Pow``."""
    t, (x, y), dtype = _translation(b, node)
    return finished(b, node, t.call("Pow", x, y), dtype)


@form("sinc", when=is_float)
def write_sinc(b: Builder, node: Node) -> str:
    """Divide the sine; 1 at 0."""
    dtype = common_dtype(node)
    t = Translation(b, dtype, {})
    angle = t.call("Mul", Term(b.value(node.args[0], dtype)), t.number(np.pi))
    zero = t.test("Equal", angle, t.number(0))
    divisor = t.where(zero, t.number(1), angle)
    return finished(b, node, t.where(zero, t.number(1), t.call("Div", t.call("Sin", angle), divisor)), dtype)


@form("leaky_relu", when=is_float)
def write_leaky_relu(b: Builder, node: Node) -> str:
    """Write ``LeakyRelu``."""
    return b.call("LeakyRelu", b.value(node.args[0]), alpha=float(node.attrs.get("slope", 0.01)))


def _supports_elu(node: Node) -> bool:
    return is_float(node) and alone(node) and node.attrs.get("rate", 1.0) == 1.0


@form("elu", when=_supports_elu)
def write_elu(b: Builder, node: Node) -> str:
    """Write ``Elu``, or ``Selu`` with a scale."""
    alpha, scale = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("scale", 1.0))
    x = b.value(node.args[0])
    return b.call("Elu", x, alpha=alpha) if scale == 1.0 else b.call("Selu", x, alpha=alpha, gamma=scale)


def _is_float32(node: Node) -> bool:
    return node.avals[0].dtype == FLOAT32 and alone(node)


@form("hardswish", when=_is_float32)
def write_hardswish(b: Builder, node: Node) -> str:
    """Write ``HardSwish``."""
    return b.call("HardSwish", b.value(node.args[0]))


@form("hardsigmoid", when=_is_float32)
def write_hardsigmoid(b: Builder, node: Node) -> str:
    """Write ``HardSigmoid``."""
    return b.call("HardSigmoid", b.value(node.args[0]), alpha=1 / 6, beta=0.5)


@form("gelu", when=_is_float32, opset=20)
def write_gelu(b: Builder, node: Node) -> str:
    """Write ``Gelu``."""
    return b.call("Gelu", b.value(node.args[0]), approximate=node.attrs.get("approximate", "none"))


def _supports_softplus(node: Node) -> bool:
    return (
        _is_float32(node) and node.attrs.get("beta", 1.0) == 1.0 and node.attrs.get("threshold", 20.0) >= 15
    )


@form("softplus", when=_supports_softplus)
def write_softplus(b: Builder, node: Node) -> str:
    """Write ``Softplus``, which is the identity in float32 beyond the threshold anyway."""
    return b.call("Softplus", b.value(node.args[0]))


def _supports_creation(node: Node) -> bool:
    return not isinstance(node.attrs.get("value", 0), complex | np.complexfloating)


@form("new_full", "zeros_like", when=_supports_creation)
def write_full(b: Builder, node: Node) -> str:
    """Write a constant, or an expanded one where a size is symbolic; the value may be a size too."""
    aval, value = node.avals[0], node.attrs.get("value", 0)
    if not isinstance(value, int | float | np.generic):
        number = b.reshape(b.cast(b.size(value), aval.dtype), ())
        return b.call("Expand", number, b.shape(aval.shape)) if aval.shape else number
    if are_numbers(aval.shape) and aval.size <= 64:
        return b.constant(np.full(aval.shape, value, aval.dtype), aval.dtype)
    return b.call("Expand", b.constant(value, aval.dtype), b.shape(aval.shape))


@form("copy")
def write_copy(b: Builder, node: Node) -> str:
    """Cast and broadcast the second operand."""
    aval, name = node.avals[0], b.value(node.args[1], node.avals[0].dtype)
    same = node.args[1].__class__ is Ref and node.args[1].aval.shape == aval.shape
    return name if same else b.call("Expand", name, b.shape(aval.shape))


@form("bitwise_left_shift", "bitwise_right_shift", when=lambda node: node.avals[0].dtype.kind in "iu")
def write_shift(b: Builder, node: Node) -> str:
    """Multiply or divide by a power of two, rounding down as a shift of signed numbers does."""
    dtype = np.dtype(np.int64) if node.avals[0].dtype.itemsize == 8 else wide(node.avals[0].dtype)
    t = Translation(b, dtype, {})
    x, y = (Term(b.value(a, dtype)) if a.__class__ is Ref else Term(number=a) for a in node.args)
    power = Term(b.call("Pow", b.constant(2, dtype), t.numeric(y)))
    if node.name == "bitwise_left_shift":
        return finished(b, node, t.call("Mul", x, power), dtype)
    rest = Term(b.call("Mod", t.numeric(x), t.numeric(power)))
    return finished(b, node, t.call("Div", t.call("Sub", x, rest), power), dtype)
