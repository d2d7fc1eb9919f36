"""``@inlined(tail)``: inline calls of the function ``tail`` at import time, by rewriting the syntax tree.

A call costs some 250 instructions, 2 % of an addition of small arrays. So the common end of all variants of
dispatch is written once, as an ordinary function, and inlined into each. Inlining does not change behaviour:
if a module's source is not available, the function is called instead.

Only statements ``t = tail(...)`` at the top level of a function's body are inlined, of a ``tail`` that
returns once, at its end. Argument expressions are substituted for parameters, and the body of an argument
``lambda: value`` for ``parameter()``.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from tenon.engine.types import OpFunction

F = TypeVar("F", bound=OpFunction)


def inlined(tail: OpFunction) -> Callable[[F], F]:
    """A decorator that replaces ``t = tail(...)`` in a function by the statements of ``tail``."""

    def decorate(function: F) -> F:
        assert isinstance(function, FunctionType)
        definitions = _definitions(function.__code__.co_filename)
        if definitions is None:
            return function
        host = definitions[function.__name__]
        host.body = [s for each in host.body for s in _statements(each, definitions[tail.__name__])]
        host.decorator_list = []
        scope: dict[str, F] = {}
        code = compile(ast.Module([host], []), function.__code__.co_filename, "exec")
        exec(code, function.__globals__, scope)
        result = scope[function.__name__]
        result.__annotations__ = function.__annotations__
        return result

    return decorate


@functools.cache
def _definitions(file: str) -> dict[str, ast.FunctionDef] | None:
    """The functions of ``file`` by name, parsed once; None where there is no source."""
    text = "".join(linecache.getlines(file))
    functions = [each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef)]
    return {each.name: each for each in functions} or None


def _copy(node: Any) -> Any:  # an AST, a list of them, or a constant
    """A deep copy of a syntax tree: an expression substituted at several places must not be shared."""
    if isinstance(node, list):
        return [_copy(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    result = type(node)(**{name: _copy(value) for name, value in ast.iter_fields(node)})
    return ast.copy_location(result, node)


def _statements(statement: ast.stmt, tail: ast.FunctionDef) -> list[ast.stmt]:
    """The statements that replace ``statement``: those of ``tail`` if it is ``name = tail(...)``."""
    match statement:
        case ast.Assign(targets=[ast.Name(name)], value=ast.Call(ast.Name(tail.name), arguments)):
            *body, last = _copy(tail.body[1:] if ast.get_docstring(tail, clean=False) else tail.body)
            assert isinstance(last, ast.Return) and isinstance(last.value, ast.Name) and last.value.id == name
            filled = _Filled(dict(zip((each.arg for each in tail.args.args), arguments, strict=True)))
            return [filled.visit(each) for each in body]
    return [statement]


class _Filled(ast.NodeTransformer):
    """Substitutes arguments for parameters."""

    def __init__(self, arguments: dict[str, ast.expr]) -> None:
        self.arguments = arguments

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a parameter that is read by its argument."""
        argument = self.arguments.get(node.id)
        return node if argument is None or not isinstance(node.ctx, ast.Load) else _copy(argument)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace ``parameter()`` by the body of its argument, if that is a lambda."""
        argument = self.arguments.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if isinstance(argument, ast.Lambda):
            return _copy(argument.body)
        return self.generic_visit(node)
