"""What ops say of themselves is what the tables said that were kept beside them."""

from __future__ import annotations

from typing import Any

import pytest

import tenon.ops
from tenon.engine.op import Kind, table
from tenon.graph import ops as graph_ops
from tenon.graph.cluster import MOVES
from tenon.ops.movement import Expand, Reshape

assert tenon.ops and graph_ops


TRANSCENDENTAL = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid",
)  # fmt: skip
#: What kind of number an element is.
PREDICATES = ("isnan", "isinf", "isfinite", "signbit")
EXPRESSIONS: dict[str, str] = {
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    "div": "a / b",
    "pow": "pow(a, b)",
    "maximum": "maximum(a, b)",
    "minimum": "minimum(a, b)",
    "fmax": "fmax(a, b)",
    "fmin": "fmin(a, b)",
    "atan2": "atan2(a, b)",
    "hypot": "hypot(a, b)",
    "logaddexp": "maximum(a, b) + log1p(exp(-(0 if a == b else abs(a - b))))",
    "copysign": "copysign(a, b)",
    "heaviside": "b if a == 0 else (1 if a > 0 else 0)",
    "neg": "-a",
    "abs": "abs(a)",
    "sign": "1 if a > 0 else (-1 if a < 0 else 0)",
    "floor": "floor(a)",
    "ceil": "ceil(a)",
    "trunc": "trunc(a)",
    "square": "a * a",
    "rsqrt": "1 / sqrt(a)",
    "reciprocal": "1 / a",
    "where": "b if a else c",
    "relu": "maximum(a, 0)",
    "relu_grad": "0 if b <= 0 else a",
    "leaky_relu": "a if a > 0 else a * slope",
    "leaky_relu_grad": "a if b > 0 else a * slope",
    "softplus_grad": "a if b * beta > threshold else a * sigmoid(b * beta)",
    "nan_to_num": "nan if isnan(a) else (high if a == inf else (low if a == (-inf) else a))",
    "silu": "a * sigmoid(a)",
    "hardtanh": "minimum(maximum(a, low), high)",
    "eq": "a == b",
    "ne": "a != b",
    "lt": "a < b",
    "le": "a <= b",
    "gt": "a > b",
    "ge": "a >= b",
    "logical_and": "(a != 0) & (b != 0)",
    "logical_or": "(a != 0) | (b != 0)",
    "logical_xor": "(a != 0) ^ (b != 0)",
    "logical_not": "a == 0",
    "bitwise_and": "a & b",
    "bitwise_or": "a | b",
    "bitwise_xor": "a ^ b",
    "bitwise_not": "~a",
    "cast": "cast(a)",
    "clone": "a",
    "contiguous": "a",
    "alias": "a",
    "ordered": "a",
    "conj": "a",
    **{name: f"{name}(a)" for name in (*TRANSCENDENTAL, *PREDICATES)},
}  # fmt: skip

#: Ops whose result is boolean, whatever the operands are.
BOOLEAN = frozenset({
    *PREDICATES, "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
    "logical_not",
})  # fmt: skip
#: Ops whose operands must be floats: integers would become some float first.
FLOAT_ONLY = frozenset({
    *TRANSCENDENTAL, "div", "pow", "atan2", "hypot", "logaddexp", "copysign", "rsqrt", "reciprocal",
    "leaky_relu", "silu", "leaky_relu_grad", "softplus_grad",
})  # fmt: skip
#: Operands before this one do not take part in the common dtype.
CONDITIONS = {"where": 1}

#: Powers that are written out, as the array libraries do.
_POWERS = {2: "a * a", 0.5: "sqrt(a)", -1: "1 / a", 1: "a", 3: "a * a * a", -0.5: "1 / sqrt(a)"}


def expression(op: str, operands: tuple[Any, ...], attrs: dict[str, Any]) -> str | None:
    """The expression of ``op`` for these operands (numbers, None or anything else) and attrs, or None."""
    if op == "clamp":
        low, high = operands[1] is not None, operands[2] is not None
        text = "maximum(a, b)" if low else "a"
        return f"minimum({text}, c)" if high else text
    if op == "pow" and operands[1].__class__ in (int, float):
        return _POWERS.get(operands[1], "pow(a, b)")
    if op == "round":
        return None if attrs.get("decimals") else "rint(a)"
    return EXPRESSIONS.get(op)


@pytest.mark.parametrize("name", sorted(table.by_name))
def test_expressions(name):
    op = table[name]
    assert op.expression == EXPRESSIONS.get(name)
    for args in ((..., ..., ...), (..., None, 2.0), (..., 2.0, None), *((..., n, None) for n in _POWERS)):
        for attrs in ({}, {"decimals": 2}):
            assert op.expression_for(args, attrs) == expression(name, args, attrs)
    if name in EXPRESSIONS:
        assert op.boolean == (name in BOOLEAN)
        assert (op.float_only or op.promotion == "float") == (name in FLOAT_ONLY)
        assert op.promoted_from == CONDITIONS.get(name, 0)


REDUCTIONS = frozenset({"sum", "mean", "prod", "amax", "amin", "any", "all", "sum_to"})
REDUCE = {"sum": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}
WRITES_OUT = frozenset({"sigmoid", "rsqrt", "round", "remainder", "floor_divide"})
PRODUCTS = frozenset({"matmul", "linear", "addmm", "conv", "convolution", "epilogue"})
RESHAPES = frozenset({"reshape", "view", "unsqueeze", "squeeze"})
IDENTITY = frozenset({"clone", "alias", "ordered", "conj", "expand", "sum_to", "window_of", "cast"})


def replaceable(op):
    if op.kind is Kind.ELEMENTWISE or op.name in ("cast", "clone"):
        return range(len(op.inputs))
    if op.name in ("max_pool_grad", "cross_entropy_grad"):
        return (1,)
    return (0,) if op.name in ("put_view", "put", "scatter", "copy") else ()


@pytest.mark.parametrize("name", sorted(table.by_name))
def test_facts_for_graphs(name):
    op = table[name]
    assert bool(op.joined_by) == (name in REDUCTIONS)
    if op.joined_by and name not in ("mean", "sum_to") and not op.boolean:
        assert table[op.joined_by].ufunc == REDUCE[name]
    if op.joined_by:
        assert op.boolean == (name in ("any", "all"))
    assert op.fills_out == (name in WRITES_OUT)
    assert op.packable == (name in PRODUCTS)
    assert isinstance(op, Reshape) == (name in RESHAPES)
    assert isinstance(op, Expand) == (name == "expand")
    assert op.identity == (name in IDENTITY)
    assert op.checks_integers == (name in ("remainder", "floor_divide"))
    if not op.view:
        reused = (
            range(len(op.inputs)) if op.reuses is None and op.kind is Kind.ELEMENTWISE else op.reuses or ()
        )
        assert tuple(reused) == tuple(replaceable(op))
    kinds = op.kind in (Kind.ELEMENTWISE, Kind.REDUCE)
    old = kinds or name in ("cast", "reshape", "expand")
    if op.view:
        old = old and name in ("sum_to", "cast", "reshape", "expand")
    moves = isinstance(op, MOVES)
    new = kinds or moves or op.expression is not None
    if op.view:
        new = new and (moves or bool(op.joined_by))
    # canonicalise leaves none of these three, and no clone
    assert new == old or name in ("view", "squeeze", "unsqueeze", "clone")


_WIDENED = frozenset(
    ["sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "cumsum", "cumprod", "log_softmax",
    "log_softmax_grad", "batch_norm_inference", "cross_entropy", "cross_entropy_grad", "nll_loss",
    "nll_loss_grad", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "var", "std", "var_mean", "std_mean", "logsumexp",
    "vector_norm", "mish", "elu", "softplus", "logsigmoid", "hardsigmoid", "hardswish", "threshold",
    "softshrink", "hardshrink", "max_pool", "max_pool_grad", "avg_pool", "avg_pool_grad", "adaptive_avg_pool",
    "adaptive_avg_pool_grad", "embedding_grad", "fold_axis", "erfinv", "logaddexp"]
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(table.by_name))
def test_floats_of_16_bits(name):
    op = table[name]
    assert op.computes_in_float32 == (name in _WIDENED)
    assert (op.packable and op.kind is Kind.CONTRACT) == (name in ("matmul", "linear", "addmm"))
