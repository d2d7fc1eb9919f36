"""``RewritingTracer``: a tracer that records ``assert`` statements and annotated assignments, by rewriting
the source."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tenon.fx._symbolic_trace import Tracer
from tenon.fx.annotate import annotate
from tenon.fx.graph import Graph
from tenon.nn.module import Module

#: The public functions, as programs call them.
_PUBLIC: Any = sys.modules["tenon"]

#: Names of the functions that rewritten code calls.
_ASSERT, _ANNOTATE, _OUTER = "__tenon_assert__", "__tenon_annotate__", "__tenon_outer__"


class AST_Rewriter(ast.NodeTransformer):
    """Rewrites a function so that tracing sees its asserts and annotations."""

    def rewrite(self, fn: FunctionType) -> FunctionType:
        """Return ``fn`` with ``assert a, b`` as ``torch._assert(a, b)``, and ``x: T = y`` as
        ``annotate(y, T)``."""
        source, first = inspect.getsourcelines(fn)
        # A block around a method preserves the indentation of its lines, in strings as well.
        indented = source[0][:1].isspace()
        tree: Any = ast.parse("".join(["if True:\n"] * indented + source))  # of any type
        definition: Any = self.visit(tree.body[0].body[0] if indented else tree.body[0])  # of any type
        definition.decorator_list = []
        # An enclosing function has the names that fn finds in the one around it.
        outer: Any = ast.parse(
            f"def {_OUTER}({', '.join(fn.__code__.co_freevars)}):\n    return {definition.name}"
        )
        outer.body[0].body.insert(0, definition)
        ast.increment_lineno(outer, first - 1 - indented)
        module = compile(ast.fix_missing_locations(outer), inspect.getsourcefile(fn) or "<rewritten>", "exec")
        code = _code_named(_code_named(module, _OUTER), fn.__name__)
        globals_ = fn.__globals__
        globals_.setdefault(_ASSERT, _PUBLIC._assert)
        globals_.setdefault(_ANNOTATE, annotate)
        cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in code.co_freevars)
        result = FunctionType(code, globals_, fn.__name__, fn.__defaults__, closure)
        result.__kwdefaults__ = copy.copy(fn.__kwdefaults__)
        functools.update_wrapper(result, fn)
        return result

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        """Replace an ``assert`` by a call of ``torch._assert``."""
        message = node.msg or ast.Constant(value="")
        call = ast.Call(ast.Name(_ASSERT, ast.Load()), [node.test, message], [])
        return ast.copy_location(ast.Expr(value=call), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Replace an annotated assignment by one of an ``annotate`` call."""
        if node.value is None:
            return node
        call = ast.Call(ast.Name(_ANNOTATE, ast.Load()), [node.value, node.annotation], [])
        return ast.copy_location(ast.Assign(targets=[node.target], value=call), node)


def _code_named(code: Any, name: str) -> Any:  # code objects
    return next(c for c in code.co_consts if inspect.iscode(c) and c.co_name == name)


class RewritingTracer(Tracer):
    """Traces a function or module with asserts and annotated assignments recorded."""

    def trace(
        # of any type
        self,
        # of any type
        root: Module | Callable[..., Any],
        # of any type
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> Graph:
        """Return the graph of ``root``."""
        return super().trace(_rewrite(root), concrete_args)


def _rewrite(fn: Module | Callable[..., Any]) -> Module | Callable[..., Any]:  # of any type
    if not isinstance(fn, Module):
        return AST_Rewriter().rewrite(fn)  # type: ignore[arg-type]
    original = fn

    class RewrittenModule(Module):
        """The module with its ``forward`` rewritten."""

        def __init__(self) -> None:
            self.__dict__ = copy.copy(original.__dict__)

    RewrittenModule.forward = AST_Rewriter().rewrite(type(original).forward)  # type: ignore[arg-type]
    RewrittenModule.__name__ = type(original).__name__
    return RewrittenModule()
