"""Which variables, items of containers and loop variables refer to the tensor of a collective.

``site.py`` asks where a call may pass any of several tensors: in a loop, a comprehension, ``map``, an
``if`` expression, or a wrapper of these. The functions from ``passed_to`` on read the source of a call.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from inspect import CO_OPTIMIZED
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

LARGEST = 64
"""Containers of more items are not searched for a tensor."""
_LISTS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FIXED = (ModuleType, FunctionType, BuiltinFunctionType, type)
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
_MAPS = frozenset(("map", "filter", "starmap"))
_READING = _MAPS | {"list", "tuple", "reversed", "sorted", "iter", "zip", "enumerate", "next", "getattr"}
"""Functions that return what they are given, or an item or attribute of it."""


class Nested(str):
    """The index of an item of an item: the text between the outermost brackets."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def search(
    variables: Iterable[tuple[str, object]],
    subject: object,
    loops: Collection[str],
    aliases: list[str],
    indices: list[tuple[str, int | str]],
) -> None:
    """Add those of ``variables`` that are ``subject``, except ``loops``, and small containers of it."""
    for name, value in variables:
        kind = type(value)
        if value is subject:
            if name not in loops:
                aliases.append(name)
        elif kind is list or kind is tuple:
            if len(value) <= LARGEST:  # type: ignore[arg-type]
                for index, item in enumerate(value):  # type: ignore[arg-type, var-annotated]
                    if item is subject:
                        indices.append((name, index))
        elif kind is dict and len(value) <= LARGEST:  # type: ignore[arg-type]
            for key, item in value.items():  # type: ignore[attr-defined]
                if item is subject and isinstance(key, int | str):
                    indices.append((name, key))


def search_inside(
    variables: Iterable[tuple[str, object]], subject: object, indices: list[tuple[str, int | str]]
) -> None:
    """Add those of ``variables`` that are small containers of small containers of ``subject``."""
    for name, value in variables:
        for key, inner in _items(value):
            for index, item in _items(inner):
                if item is subject:
                    indices.append((name, Nested(f"{key!r}][{index!r}")))


def _items(value: object) -> Iterator[tuple[int | str, object]]:
    """The items of a small container and their indices."""
    if isinstance(value, list | tuple) and len(value) <= LARGEST:
        yield from enumerate(value)
    elif type(value) is dict and len(value) <= LARGEST:
        yield from ((key, item) for key, item in value.items() if isinstance(key, int | str))


def searched(names: Iterable[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Those of ``names`` that may come to refer to a tensor: not modules, functions and classes."""
    return tuple(name for name in names if not isinstance(values.get(name), _FIXED))


def in_frame(
    code: CodeType, names: Collection[str], values: Mapping[str, object], others: Mapping[str, object]
) -> Iterable[tuple[str, object]]:
    """The variables of a frame of ``code``: those of a function, and ``names`` of its module."""
    found = [(name, others[name]) for name in names if name in others]
    if code.co_flags & CO_OPTIMIZED:
        return [*values.items(), *found] if found else values.items()
    return found


def is_comprehension(code: CodeType) -> bool:
    """Whether ``code`` is that of a comprehension or of a generator expression."""
    return code.co_name in _COMPREHENSIONS


def passed_to(
    inner: CodeType, wanted: Collection[str], closure: bool, expression: ast.expr
) -> list[ast.expr]:
    """What ``expression``, which calls ``inner``, passes as the parameters ``wanted``.

    With ``closure``, also what is called: it has the variables that ``inner`` takes from outside.
    """
    if isinstance(expression, _LISTS):
        return [generator.iter for generator in expression.generators]
    if isinstance(expression, ast.Attribute):
        return [expression.value]  # a property
    if not isinstance(expression, ast.Call):
        return []
    called = expression.func
    receiver = called.value if isinstance(called, ast.Attribute) else called
    if is_comprehension(inner):
        return [*expression.args]
    parameters = inner.co_varnames[: inner.co_argcount]
    first = 1 if parameters[:1] in (("self",), ("cls",)) else 0
    found = [receiver] if closure or (first and parameters[0] in wanted) else []
    found += [
        value
        for number, value in enumerate(expression.args)
        if number + first < len(parameters) and parameters[number + first] in wanted
    ]
    found += [each.value for each in expression.keywords if each.arg in wanted]
    if any(isinstance(each, ast.Starred) for each in expression.args):
        return [*found, *expression.args]
    return found or ([] if expression.args or expression.keywords else [receiver])  # a partial function


def variables_in(expressions: Iterable[ast.expr]) -> set[str]:
    """The variables that identify the value of ``expressions``: not what functions in it compute with."""
    return {node.id for part in expressions for node in _parts(part) if isinstance(node, ast.Name)}


def item_variables(expressions: Iterable[ast.expr]) -> set[str]:
    """The variables by which ``expressions`` choose an item or an attribute."""
    chosen: list[ast.expr] = []
    for part in expressions:
        for node in _parts(part):
            if isinstance(node, ast.Subscript):
                chosen.append(node.slice)
            elif isinstance(node, ast.Call) and _is_named(node.func, ("getattr",)):
                chosen += node.args[1:]
    return {node.id for part in chosen for node in ast.walk(part) if isinstance(node, ast.Name)}


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call) and not _is_named(node.func, _READING):
        children = [node.func]
    for child in children:
        yield from _parts(child)


def _is_named(function: ast.expr, names: Collection[str]) -> bool:
    return (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")) in names


def is_choice(expression: ast.expr) -> bool:
    """Whether ``expression`` may be any of several existing tensors: an item, a conditional or a list."""
    return is_loop(expression) or any(
        isinstance(node, ast.IfExp | ast.BoolOp | ast.List | ast.Tuple)
        or (isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant | ast.Slice))
        for node in _parts(expression)
    )


def is_loop(expression: ast.expr) -> bool:
    """Whether ``expression`` is several tensors in turn: a comprehension, ``map``, or one list or another."""
    arms = (expression.body, expression.orelse) if isinstance(expression, ast.IfExp) else ()
    if arms and all(isinstance(arm, ast.List | ast.Tuple) for arm in arms):
        return True
    return any(
        isinstance(node, _LISTS) or (isinstance(node, ast.Call) and _is_named(node.func, _MAPS))
        for node in _parts(expression)
    )


def named(expression: ast.expr) -> bool:
    """Whether ``expression`` is a variable, an attribute or an item, whose text identifies the tensor."""
    return isinstance(expression, ast.Name | ast.Attribute | ast.Subscript)


def elements(expression: ast.expr | None, count: int) -> Sequence[ast.expr | None]:
    """The expressions of the ``count`` tensors of a list; None where the source does not list them."""
    listed = expression.elts if isinstance(expression, ast.List | ast.Tuple) else []
    starred = any(isinstance(each, ast.Starred) for each in listed)
    return listed if len(listed) == count and not starred else [None] * count
