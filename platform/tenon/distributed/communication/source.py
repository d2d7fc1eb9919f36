"""Read the source of a program's frames: the call that each is in, and the branches around it.

The files of a program are parsed once, and only when the calls of two ranks differ.
"""

from __future__ import annotations

import ast
import dis
import functools
import itertools
import linecache
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import TypeAlias

from tenon.distributed.communication.origin import REST, TEST, Arm, Place, digest_of

LONGEST = 80
"""Maximal length of an expression that is used as a name."""
MOST_CALLS = 128
"""Calls beside one that are compared with another rank's."""
PLACES = 1024
"""Size of the cache of places."""
#: CPython 3.11 counts the depth of the tree once for all threads that parse (gh-106905).
_PARSING = threading.Lock()
Span: TypeAlias = tuple[int, int, int, int]


def span_of(code: CodeType, instruction: int) -> Span | None:
    """Lines and columns (first, last, start, stop) of the expression at byte ``instruction`` of ``code``."""
    first, last, start, stop = list(code.co_positions())[instruction // 2]
    if first is None or last is None or start is None or stop is None:
        return None
    return first, last, start, stop


def expression_at(code: CodeType, instruction: int) -> ast.expr | None:
    """The syntax of the expression at byte ``instruction`` of ``code``; None if its source is not there."""
    span = span_of(code, instruction)
    if span is None:
        return None
    first, last, start, stop = span
    lines = [line.encode() for line in _lines(code.co_filename)[first - 1 : last]]
    if len(lines) != last - first + 1:
        return None
    lines[-1] = lines[-1][:stop]
    lines[0] = lines[0][start:]
    try:
        with _PARSING:
            return ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except SyntaxError:
        return _entered(code, instruction)  # a statement, or the file has changed since it was imported


def _entered(code: CodeType, instruction: int) -> ast.expr | None:
    """The context manager of the ``with`` statement at byte ``instruction`` of ``code``, if it has one."""
    path = path_at(code, instruction)
    if path is None or not isinstance(path[-1], ast.With | ast.AsyncWith) or len(path[-1].items) > 1:
        return None
    return path[-1].items[0].context_expr


def loop_variables(code: CodeType) -> set[str]:
    """The variables that ``for`` loops in ``code`` assign."""
    return {variable for group in loop_groups(code) for variable in group}


@functools.lru_cache(maxsize=PLACES)
def loop_groups(code: CodeType) -> list[list[str]]:
    """The variables of each ``for`` loop in ``code``: the stores right after ``FOR_ITER``."""
    groups: list[list[str]] = []
    assigns = False
    for instruction in dis.get_instructions(code):
        if instruction.opname == "FOR_ITER":
            assigns = True
            groups.append([])
        elif assigns and instruction.opname.startswith("STORE_"):
            names = instruction.argval
            groups[-1] += names if isinstance(names, tuple) else (names,)
        elif instruction.opname != "UNPACK_SEQUENCE":
            assigns = False
    return groups


def module_variables(code: CodeType) -> tuple[str, ...]:
    """The variables of the module, or of the class, that ``code`` mentions, except those of loops."""
    loops = loop_variables(code)
    found = {
        str(instruction.argval): None
        for instruction in dis.get_instructions(code)
        if instruction.opname.endswith(("_GLOBAL", "_NAME")) and instruction.argval not in loops
    }
    return tuple(found)


_places: dict[tuple[int, int], tuple[CodeType, Place]] = {}


def place_of(code: CodeType, instruction: int) -> Place:
    """The place of byte ``instruction`` of ``code``, cached."""
    known = _places.get((id(code), instruction))
    if known is None:
        if len(_places) >= PLACES:
            _places.clear()
        known = _places[id(code), instruction] = code, _read_place(code, instruction)
    return known[1]


def _read_place(code: CodeType, instruction: int) -> Place:
    function = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno} {code.co_qualname}"
    span = span_of(code, instruction)
    if span is None:
        return Place(function, 0, instruction, "")
    place = Place(function, span[0], span[2], "")
    path = path_at(code, instruction)
    if path is None:
        return place
    node = path[-1]
    entered = (
        [item.context_expr for item in node.items] if isinstance(node, ast.With | ast.AsyncWith) else [node]
    )
    place.call = ", ".join(map(ast.unparse, entered))[: 4 * LONGEST]
    place.arms = list(_arms(path))
    if isinstance(node, ast.Call):
        place.chosen = isinstance(node.func, ast.Name) and node.func.id in loop_variables(code)
    if isinstance(node, ast.Call | ast.Attribute):
        place.others = _others(node, path)
    return place


def path_at(code: CodeType, instruction: int) -> list[ast.AST] | None:
    """The nodes from the module down to the call at byte ``instruction`` of ``code``; None without source."""
    span, tree = span_of(code, instruction), _tree(code.co_filename)
    return None if span is None or tree is None else _find(tree, span)


def scope_of(path: Sequence[ast.AST]) -> ast.AST:
    """The innermost function in ``path``, or the module."""
    return next((node for node in reversed(path) if isinstance(node, _SCOPES)), path[0])


def _others(call: ast.Call | ast.Attribute, path: Sequence[ast.AST]) -> list[tuple[str, list[Arm]]]:
    """Other calls in the same function, or properties, with the branches around them."""
    scope = scope_of(path)
    above = path[: path.index(scope)]
    function = _last_name(call)
    others: list[tuple[str, list[Arm]]] = []
    for node, inner in walk(scope, []):
        if node is not call and isinstance(node, type(call)):
            text = ast.unparse(node)[: 4 * LONGEST]
            text = text if _last_name(node) == function else digest_of(text)
            others.append((text, list(_arms([*above, *inner, node]))))
            if len(others) == MOST_CALLS:
                break
    return others


def _last_name(expression: ast.AST) -> str:
    """``all_reduce`` of ``dist.all_reduce(x)``, and of ``dist.all_reduce``."""
    function = expression.func if isinstance(expression, ast.Call) else expression
    return function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)


def walk(node: ast.AST, path: list[ast.AST]) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """``node`` and all below it in the same function, with the nodes above each."""
    yield node, path
    below = [*path, node]
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield from walk(child, below)


def _find(tree: ast.AST, span: Span) -> list[ast.AST] | None:
    """The path of nodes down to the node of exactly this span, or to the innermost around it."""
    node, path = tree, [tree]
    while True:
        if _span(node) == span and isinstance(node, ast.Call):
            return path
        inner = next((child for child in ast.iter_child_nodes(node) if _contains(child, span)), None)
        if inner is None:
            return path if isinstance(node, ast.expr | ast.With | ast.AsyncWith) else None
        node = inner
        path = [*path, node]


def _span(node: ast.AST) -> Span | None:
    if not isinstance(node, ast.expr | ast.stmt | ast.ExceptHandler):
        return None
    return node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0


def _contains(node: ast.AST, span: Span) -> bool:
    own = _span(node)
    if own is None:
        return any(_contains(child, span) for child in ast.iter_child_nodes(node))
    first, last, start, stop = span
    return (own[0], own[2]) <= (first, start) and (last, stop) <= (own[1], own[3])


def _arms(path: Sequence[ast.AST]) -> Iterator[Arm]:
    """The branches on the path from a module to a node, and those before it that may have left its block."""
    for above, node in itertools.pairwise(path):
        for number, (arm, words) in enumerate(_branches(above)):
            if any(child is node for child in arm):
                yield _identifier(above), number, (), words
        block = next((body for body in _blocks(above) if any(child is node for child in body)), ())
        for statement in block:
            if statement is node:
                break
            exits = [n for n, (arm, _) in enumerate(_branches(statement)) if arm and _leaves(arm[-1])]
            if exits:
                yield _identifier(statement), REST, exits, ()


def _identifier(node: ast.AST) -> str:
    return f"{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}"


def _branches(node: ast.AST) -> list[tuple[Sequence[ast.AST], list[str]]]:
    """The arms of a branch, each with the identifiers in its test; empty for other nodes."""
    if isinstance(node, ast.If):
        return [(node.body, _identifiers(node.test)), (node.orelse, _identifiers(node.test))]
    if isinstance(node, ast.IfExp):
        return [([node.body], _identifiers(node.test)), ([node.orelse], _identifiers(node.test))]
    if isinstance(node, ast.BoolOp):
        return [((), []), (node.values[1:], _identifiers(node.values[0]))]
    if isinstance(node, ast.Match):
        return [(case.body, _identifiers(node.subject)) for case in node.cases]
    if isinstance(node, ast.Try):
        return [(node.body, []), *(((handler,), []) for handler in node.handlers)]
    return []


def _blocks(node: ast.AST) -> Iterator[Sequence[ast.AST]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def _leaves(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break)


def _identifiers(test: ast.AST) -> list[str]:
    """The variables and attributes in an expression, and its source."""
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute)}
    return [TEST + ast.unparse(test)[: 4 * LONGEST], *sorted(names)]


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        with _PARSING:
            return ast.parse("".join(_lines(file)))
    except SyntaxError:
        return None


def _lines(file: str) -> list[str]:
    """The lines of a source file, or of the program passed by ``python -c``."""
    if file == "<string>" and "-c" in sys.orig_argv[:-1]:
        return sys.orig_argv[sys.orig_argv.index("-c") + 1].splitlines(keepends=True)
    return linecache.getlines(file)
