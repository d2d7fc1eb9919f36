"""The expression language of elementwise ops, as ``expression = "a * sigmoid(a)"``.

One text serves every backend that generates code, and NumPy (``evaluate``). An expression is a Python
expression over the operands ``a``, ``b``, ``c`` and the op's attrs, in which

- ``x if condition else y`` selects (both sides are computed), ``==`` and ``<`` compare as IEEE does;
- numbers take the dtype of the other operand;
- the functions are those in ``FUNCTIONS``, which every generator must provide. ``maximum`` and ``minimum``
  return NaN if either operand is, ``fmax`` and ``fmin`` the other operand.

An op without one (``Op.expression``) is a composite, which is recorded as its parts, or cannot be fused.
``Translator`` is the base class for code generators.
Next: ``tenon.graph.cluster`` describes several ops that run as one kernel.
"""

from __future__ import annotations

import ast
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, Generic, TypeVar

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


#: What a generator makes of a part of an expression: text in its language, or a value of its graph.
Term = TypeVar("Term")


class Translator(ABC, Generic[Term]):
    """Translates an expression part by part, operands first; a subclass says what each kind of part becomes.

    >>> class Lisp(Translator[str]):
    ...     def number(self, value): return repr(value)
    ...     def named(self, name): return name
    ...     def where(self, condition, one, other): return f"(if {condition} {one} {other})"
    ...     def binary_operator(self, op, left, right): return f"({type(op).__name__} {left} {right})"
    ...     def unary_operator(self, op, operand): return f"({type(op).__name__} {operand})"
    ...     def comparison(self, op, left, right): return f"({type(op).__name__} {left} {right})"
    ...     def function(self, name, *args): return f"({name} {' '.join(args)})"
    >>> Lisp().translate("a * sigmoid(a) if a < 4 else a")
    '(if (Lt a 4) (Mult a (sigmoid a)) a)'
    """

    def translate(self, text: str) -> Term:
        """Translate an expression; NotImplementedError if it has a part that the language has not."""
        return self.visit(ast.parse(text, mode="eval").body)

    def visit(self, node: ast.expr) -> Term:
        """Translate a parsed expression."""
        match node:
            case ast.Constant(value=value) if isinstance(value, int | float):
                return self.number(value)
            case ast.Name(id=name):
                return self.named(name)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.where(self.visit(test), self.visit(body), self.visit(other))
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary_operator(op, self.visit(left), self.visit(right))
            case ast.UnaryOp(op=unary, operand=operand):
                return self.unary_operator(unary, self.visit(operand))
            case ast.Compare(left=left, ops=[relation], comparators=[right]):
                return self.comparison(relation, self.visit(left), self.visit(right))
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.function(name, *map(self.visit, args))
        raise NotImplementedError(f"expressions have no {type(node).__name__}: {ast.unparse(node)}")

    @abstractmethod
    def number(self, value: float) -> Term:
        """Translate a number."""

    @abstractmethod
    def named(self, name: str) -> Term:
        """Translate the name of an operand or attr, ``inf`` or ``nan``."""

    @abstractmethod
    def where(self, condition: Term, one: Term, other: Term) -> Term:
        """Translate ``one if condition else other``."""

    @abstractmethod
    def binary_operator(self, op: ast.operator, left: Term, right: Term) -> Term:
        """Translate an arithmetic or bitwise operator with two operands."""

    @abstractmethod
    def unary_operator(self, op: ast.unaryop, operand: Term) -> Term:
        """Translate ``-`` or ``~``."""

    @abstractmethod
    def comparison(self, op: ast.cmpop, left: Term, right: Term) -> Term:
        """Translate a comparison of two operands."""

    @abstractmethod
    def function(self, name: str, *args: Term) -> Term:
        """Translate a call of one of ``FUNCTIONS``."""


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
