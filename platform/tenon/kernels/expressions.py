"""The expression language of elementwise ops, as ``expression = "a * sigmoid(a)"``.

One text serves every backend that generates code, and NumPy (``evaluate``). An expression is a Python
expression over the operands ``a``, ``b``, ``c`` and the op's attrs, in which

- ``x if condition else y`` selects (both sides are computed), ``==`` and ``<`` compare as IEEE does;
- numbers take the dtype of the other operand;
- the functions are those in ``FUNCTIONS``, which every generator must provide. ``maximum`` and ``minimum``
  return NaN if either operand is, ``fmax`` and ``fmin`` the other operand.

An op without one (``Op.expression``) is a composite, which is recorded as its parts, or cannot be fused.
Next: ``tenon.graph.cluster`` describes several ops that run as one kernel.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import numpy as np

from tenon.engine.op import Op, Primitive
from tenon.engine.types import Array, ArrayNamespace, Attrs, Operand

#: Functions of one or two numbers from the mathematical library (libm), which may differ in the last bit.
MATHEMATICS = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "pow", "atan2", "hypot",
})  # fmt: skip
#: All functions that an expression may call; those beside ``MATHEMATICS`` round once, if at all.
FUNCTIONS = MATHEMATICS | {
    "sqrt", "floor", "ceil", "trunc", "rint", "abs", "copysign", "maximum", "minimum", "fmax", "fmin", "cast",
    "isnan", "isinf", "isfinite", "signbit",
}  # fmt: skip


def is_exact(op: Op) -> bool:
    """Whether generated code is bit-identical to NumPy: all operations are correctly rounded."""
    text = op.expression_for((..., ..., ...), {})
    return text is not None and not operations(text) & MATHEMATICS


def is_costly(op: Op) -> bool:
    """Whether the expression calls a mathematical function, which costs as much as some ten additions."""
    return op.expression is not None and not operations(op.expression).isdisjoint(MATHEMATICS)


def divides(op: Op) -> bool:
    """Whether the expression has a division or a root, which cost as much as some five additions."""
    return op.expression is not None and not operations(op.expression).isdisjoint(("/", "sqrt"))


@functools.cache
def operations(text: str) -> frozenset[str]:
    """Return the names of the functions in an expression, and "/" if it divides."""
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    named = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return frozenset(named | {"/" for n in nodes if isinstance(n, ast.Div)})


def evaluate(
    op: Op, ops: Mapping[str, Op], xp: ArrayNamespace, args: tuple[Operand, ...], attrs: Attrs
) -> Array:
    """Evaluate ``op.expression`` on arrays of the namespace ``xp``; 16-bit floats are computed in float32 and
    rounded once, as in generated code. ``ops`` provides the forwards of the functions."""
    text = op.expression_for(args, attrs)
    if text is None:
        raise TypeError(f"op {op.name} has neither a forward nor an expression for this call.")
    values, out = {**op.defaults, **attrs}, attrs.get("out")
    dtype = next(a.dtype for a in args[op.promoted_from :] if hasattr(a, "dtype"))
    narrow = dtype.itemsize == 2 and dtype.kind in "fV"
    for letter, a in zip("abc", args, strict=False):
        values[letter] = a.astype(np.float32) if narrow and getattr(a, "dtype", None) == dtype else a
    result = xp.asarray(eval(_compiled(text), {"__builtins__": {}}, _Names(values, ops, xp)))
    shape = np.broadcast_shapes(*[a.shape for a in args if hasattr(a, "shape")])
    shared = result.shape != shape or any(result is a for a in args)
    result = xp.broadcast_to(result, shape).astype(np.bool_ if op.boolean else dtype, copy=shared)
    if out is None:
        return result
    out[...] = result
    return out


class _Names(dict[str, Operand]):
    """The namespace of an expression: operands and attrs, else functions over ``xp``."""

    # ``ops`` are Primitives: the functions that expressions name all have forwards.
    def __init__(self, values: dict[str, Operand], ops: Mapping[str, Any], xp: ArrayNamespace) -> None:
        super().__init__(values, inf=float("inf"), nan=values.get("nan", float("nan")))
        self.ops, self.xp = ops, xp

    def __missing__(self, name: str) -> Callable[..., Array]:
        if name not in FUNCTIONS and name != "where":
            raise KeyError(name)
        return functools.partial(self.ops[{"rint": "round"}.get(name, name)].forward, self.xp)


@functools.cache
def _compiled(text: str) -> CodeType:
    tree = _Selections().visit(ast.parse(text, mode="eval"))
    return compile(ast.fix_missing_locations(tree), f"<{text}>", "eval")


class _Selections(ast.NodeTransformer):
    """Rewrite ``x if condition else y`` as ``where(condition, x, y)``."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.Call:
        """Rewrite a conditional and those nested in it."""
        self.generic_visit(node)
        return ast.Call(ast.Name("where", ast.Load()), [node.test, node.body, node.orelse], [])


Primitive.evaluate = evaluate
