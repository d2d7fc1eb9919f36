"""Samples of the elementwise ops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.testing.samples.draw import Draw, boolean, expanded, integer, normal, uniform, values
from tenon.testing.samples.table import Reference, add

_EXTREME = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e30, -1e30, 1e-30)


def _unary(
    op: str,
    reference: Reference,
    draw: Callable[..., Draw] = normal,
    extreme: bool = True,
    **more: object,
) -> None:
    add(op, "matrix", draw(3, 4), reference=reference, **more)
    add(op, "scalar", draw(), reference=reference, tags="scalar", **more)
    add(op, "empty", draw(2, 0, 3), reference=reference, tags="empty", **more)
    add(op, "transposed", draw(3, 4).in_layout("transposed"), reference=reference, tags="strided", **more)
    add(op, "strided", draw(3, 4).in_layout("strided"), reference=reference, tags="strided", **more)
    add(op, "large", draw(20, 30), reference=reference, tags="large", **more)
    if extreme:
        more.pop("narrow", None)
        add(op, "extreme", values(*_EXTREME), reference=reference, tags="extreme", narrow=False, **more)


def _binary(
    op: str,
    reference: Reference,
    draw: Callable[..., Draw] = normal,
    other: Callable[..., Draw] | None = None,
    extreme: bool = True,
    **more: object,
) -> None:
    other = other or draw
    add(op, "same", draw(3, 4), other(3, 4), reference=reference, **more)
    add(op, "broadcast", draw(3, 1), other(2, 1, 4), reference=reference, tags="broadcast", **more)
    add(op, "row", draw(3, 4), other(4), reference=reference, tags="broadcast", **more)
    add(op, "scalars", draw(), other(), reference=reference, tags="scalar", **more)
    add(op, "scalar_left", draw(), other(2, 3), reference=reference, tags="scalar broadcast", **more)
    add(op, "empty", draw(0, 4), other(1, 4), reference=reference, tags="empty broadcast", **more)
    add(
        op,
        "strided",
        draw(3, 4).in_layout("strided"),
        other(3, 4).in_layout("transposed"),
        reference=reference,
        tags="strided",
        **more,
    )
    add(op, "large", draw(20, 30), other(20, 30), reference=reference, tags="large", **more)
    add(op, "number_right", draw(2, 3), 0.75, reference=reference, tags="scalar", **more)
    add(op, "number_left", 0.75, other(2, 3), reference=reference, tags="scalar", **more)
    if draw is normal:
        add(op, "expanded", expanded((3, 1), 3, 4), other(3, 4), reference=reference, tags="expanded", **more)
    if extreme:
        more.pop("narrow", None)
        pairs = [(a, b) for a in _EXTREME for b in (0.0, 2.0, -np.inf, np.nan)]
        left, right = values(*(a for a, _ in pairs)), values(*(b for _, b in pairs))
        add(op, "extreme", left, right, reference=reference, tags="extreme", narrow=False, **more)


def _integers(op: str, reference: Reference, low: int = -5, high: int = 6, other: int | None = None) -> None:
    second = integer(low if other is None else other, high, 3, 4)
    add(op, "integers", integer(low, high, 3, 4), second, reference=reference, tags="integer")
    add(
        op,
        "narrow_integers",
        integer(low, high, 4, dtype="int8"),
        integer(1, high, 4, dtype="int8"),
        reference=reference,
        tags="integer",
    )


def positive(*shape: int) -> Draw:
    """Return a draw of positive numbers away from 0."""
    return uniform(0.3, 3.0, *shape)


def inside(*shape: int) -> Draw:
    """Return a draw of numbers in (-1, 1)."""
    return uniform(-0.9, 0.9, *shape)


def above_one(*shape: int) -> Draw:
    """Return a draw of numbers above 1."""
    return uniform(1.2, 4.0, *shape)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return np.where(wide >= 0, 1 / (1 + np.exp(-wide)), np.exp(wide) / (1 + np.exp(wide))).astype(x.dtype)


def _sign(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), x.dtype.type(0), np.sign(x))


for _name in ("exp", "expm1", "exp2", "sin", "cos", "sinh", "cosh", "tanh", "floor", "ceil", "trunc"):
    _unary(_name, getattr(np, _name))
for _name in ("log", "log2", "log10", "log1p", "sqrt"):
    _unary(_name, getattr(np, _name), positive)
for _name, _reference in {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "tan": np.tan,
}.items():
    _unary(_name, _reference, inside)
_unary("asinh", np.arcsinh, extreme=False)
_unary("acosh", np.arccosh, above_one)
_unary("neg", np.negative)
_unary("abs", np.abs, positive)
_unary("sign", _sign, positive)
_unary("square", np.square)
_unary("reciprocal", np.reciprocal, positive)
_unary("rsqrt", lambda x: 1 / np.sqrt(x), positive)
_unary("sigmoid", _sigmoid)
_unary("conj", np.conj)
_unary("round", np.round)
add(
    "round",
    "decimals",
    normal(3, 4),
    reference=lambda x, decimals: np.round(x, decimals),
    attrs={"decimals": 1},
)
add("round", "halves", values(0.5, 1.5, 2.5, -0.5, -1.5), reference=np.round, tags="non-smooth")
add("abs", "zero", values(0.0, -1.0, 2.0), reference=np.abs, tags="non-smooth")
add("abs", "complex", values(3 + 4j, -0.5j, 2.0, dtype="complex128"), reference=np.abs, order=0)
add("abs", "integers", integer(-4, 5, 3, 4), reference=np.abs, tags="integer")
add("neg", "integers", integer(-4, 5, 3, 4), reference=np.negative, tags="integer")
add("square", "integers", integer(-4, 5, 3, 4), reference=np.square, tags="integer")
add("exp", "integers", integer(-4, 5, 3, 4), reference=lambda x: np.exp(x.astype(np.float32)), tags="integer")
add("sqrt", "booleans", boolean(3, 4), reference=lambda x: np.sqrt(x.astype(np.float32)), tags="integer")
add(
    "sigmoid",
    "integers",
    integer(-4, 5, 3),
    reference=lambda x: _sigmoid(x.astype(np.float32)),
    tags="integer",
)

_binary("add", np.add)
_binary("sub", np.subtract)
_binary("mul", np.multiply)
_binary("div", np.true_divide, other=positive)
_binary("maximum", np.maximum)
_binary("minimum", np.minimum)
_binary("fmax", np.fmax)
_binary("fmin", np.fmin)
_binary("atan2", np.arctan2, positive, extreme=False)
_binary("hypot", np.hypot)
_binary("logaddexp", np.logaddexp, extreme=False)
_binary("pow", np.power, positive)
_binary("remainder", np.remainder, other=positive, extreme=False, narrow=False, order=1)
_binary("fmod", np.fmod, other=positive, extreme=False, narrow=False, order=1)
_binary("floor_divide", np.floor_divide, other=positive, extreme=False, narrow=False)
for _name, _reference in {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
}.items():
    _integers(_name, _reference)
_integers("floor_divide", np.floor_divide, other=1)
_integers("remainder", np.remainder, other=1)
_integers("fmod", np.fmod, other=1)
_integers("pow", np.power, low=0, high=4)
add(
    "div",
    "integers",
    integer(-5, 6, 3, 4),
    integer(1, 6, 4),
    reference=lambda x, y: np.true_divide(x, y).astype(np.float32),
    tags="integer",
)
add("pow", "zero_base", values(0.0, 0.0, 2.0), values(2.0, 0.0, 0.0), reference=np.power, tags="non-smooth")
add("pow", "negative_base", values(-2.0, -0.5, 3.0), 3.0, reference=np.power)
add("maximum", "ties", values(1.0, 2.0, 3.0), values(1.0, 5.0, 3.0), reference=np.maximum, tags="non-smooth")

add("where", "same", boolean(3, 4), normal(3, 4), normal(3, 4), reference=np.where)
add("where", "broadcast", boolean(3, 1), normal(4), normal(2, 1, 1), reference=np.where, tags="broadcast")
add("where", "numbers", boolean(3, 4), normal(3, 4), 0.25, reference=np.where, tags="scalar")
add("where", "two_numbers", boolean(3, 4), 1, 0.25, reference=np.where, tags="scalar")
add("where", "empty", boolean(0, 4), normal(0, 4), normal(1, 4), reference=np.where, tags="empty")
add("where", "integers", boolean(3), integer(0, 5, 3), integer(5, 9, 3), reference=np.where, tags="integer")
