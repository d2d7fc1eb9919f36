"""Read in the source whether code decides by the plain number that ``int(size)`` or ``len(x)`` gives.

Python's converters return numbers that cannot be traced. They are harmless where they are sizes of tensors
and operands, which captures at several sizes compare; a branch on them would go unseen.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
from collections.abc import Iterator
from types import FrameType

_CONTAINS = dis.opmap["CONTAINS_OP"]
#: Functions whose result hides how their arguments compare.
_COMPARING = frozenset({"min", "max", "range", "abs", "bool", "sorted", "clamp"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)


def tests_membership(frame: FrameType) -> bool:
    """Whether ``frame`` evaluates ``x in y``."""
    return frame.f_code.co_code[frame.f_lasti] == _CONTAINS


def decides_by_result(frame: FrameType) -> int | None:
    """Return the line that decides by the result of the call that ``frame`` evaluates; None if none does.

    It follows the result through the operators around the call, and through the variable that it is assigned
    to, in the same function. None too if there is no source.
    """
    tree = _tree(frame.f_code.co_filename)
    place = _position(frame)
    if tree is None or place is None:
        return None
    for node, parents in _with_parents(tree):
        if isinstance(node, ast.expr) and _place(node) == place:
            names, line = _outcome(node, parents)
            if line is not None:
                return line
            scope = next(parent for parent in reversed(parents) if isinstance(parent, _FUNCTIONS))
            return _decided_by(scope, names)
    return None


def _decided_by(scope: ast.AST, names: set[str]) -> int | None:
    """Return the line in ``scope`` that decides by one of the variables ``names``, or by what follows."""
    followed: set[str] = set()
    while names - followed:
        followed |= names
        for node, parents in _with_parents(scope):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in followed:
                further, line = _outcome(node, parents)
                if line is not None:
                    return line
                names = names | further
    return None


def _outcome(node: ast.expr, parents: list[ast.AST]) -> tuple[set[str], int | None]:
    """Return the variables that get a value computed from ``node``, and the line that decides by it."""
    child: ast.AST = node
    for parent in reversed(parents):
        if _decides(parent, child):
            return set(), getattr(parent, "lineno", getattr(child, "lineno", 0))
        if isinstance(parent, ast.NamedExpr):
            return {parent.target.id}, None
        if isinstance(parent, ast.Assign):
            targets = [each for target in parent.targets for each in ast.walk(target)]
            return {each.id for each in targets if isinstance(each, ast.Name)}, None
        if isinstance(parent, ast.AugAssign | ast.AnnAssign):
            return {parent.target.id} if isinstance(parent.target, ast.Name) else set(), None
        if isinstance(parent, ast.Call) and not _is_plain_call(parent):
            return set(), None
        if not isinstance(parent, ast.BinOp | ast.UnaryOp | ast.Call | ast.Tuple | ast.List | ast.IfExp):
            return set(), None
        child = parent
    return set(), None


def _is_plain_call(call: ast.Call) -> bool:
    """Whether the result of a call is a number again, as that of ``int`` and ``math.sqrt``."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in {"int", "float", "len", "round", "divmod", "sum"}
    owner = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in {"math", "np", "numpy", "operator"}


def _decides(parent: ast.AST, child: ast.AST) -> bool:
    """Whether ``parent`` hides how the number ``child`` compares with others."""
    if isinstance(parent, ast.Compare | ast.BoolOp | ast.Match):
        return True
    if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
        return child is parent.test
    if isinstance(parent, ast.UnaryOp):
        return isinstance(parent.op, ast.Not)
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, ast.FloorDiv | ast.Mod | ast.RShift | ast.BitAnd)
    if isinstance(parent, ast.Call) and child is not parent.func:
        function = parent.func
        return isinstance(function, ast.Name) and function.id in _COMPARING
    return isinstance(parent, ast.Subscript) and child is parent.slice


def _position(frame: FrameType) -> tuple[int | None, ...] | None:
    """Return where the expression is that ``frame`` evaluates: first and last line, first and last column."""
    positions = frame.f_code.co_positions()
    return next((place for number, place in enumerate(positions) if number == frame.f_lasti // 2), None)


def _place(node: ast.expr) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _with_parents(tree: ast.AST) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """Yield the nodes below ``tree``, each with those that contain it, the outermost first."""
    stack: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while stack:
        node, parents = stack.pop()
        yield node, parents
        below = [*parents, node]
        stack += [(child, below) for child in ast.iter_child_nodes(node)]


@functools.lru_cache(maxsize=8)
def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _tree(filename: str) -> ast.Module | None:
    lines = linecache.getlines(filename)
    return _parsed("".join(lines)) if lines else None
