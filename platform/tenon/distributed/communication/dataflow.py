"""From which variables the tensor of a collective comes, through the assignments of a function.

``site.py`` follows the tensor backwards through the frames; ``trace`` does so within one frame: from
``dist.all_reduce(t)`` over ``t = grads[key]`` to ``grads`` and ``key``. What functions compute from their
arguments is new, and not followed. Variables are those of the whole function: which assignment came last is
not asked, as what may differ between ranks need only be a superset.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import NamedTuple, TypeAlias

from tenon.distributed.communication import references, source

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_PAIRS = frozenset(("items", "named_buffers", "named_parameters", "named_children", "named_modules"))
"""Methods whose values come with a name that is theirs alone."""


class Definition(NamedTuple):
    """A value that a function assigns to a variable."""

    value: ast.expr
    iterated: bool
    """The variable is an item of ``value``, by turns."""
    key: str = ""
    """The variable that has the item's key."""
    in_loop: bool = False
    around: tuple[str, ...] = ()
    """The variables of the innermost ``for`` around the assignment."""


#: The values that a function assigns, by variable.
Definitions: TypeAlias = Mapping[str, Sequence[Definition]]


@dataclass
class Flow:
    """What ``trace`` has found."""

    names: set[str] = field(default_factory=set)
    """Variables that identify the value."""
    keys: set[str] = field(default_factory=set)
    """Those that choose an item or an attribute, by their own value."""
    around: set[str] = field(default_factory=set)
    """Variables of the loops in which the function chooses the value by other means."""
    chooses: bool = False
    """An assignment in a loop chooses one of several values."""
    returned: bool = False
    """An assignment in a loop is what a function returns: a new value, or one of several."""
    around_returned: set[str] = field(default_factory=set)
    """Variables of the loops of such assignments."""
    computed: bool = False
    """A key is a result of arithmetic or of a function, as ``parts[(rank + step) % size]``."""


def definitions_at(code: CodeType, instruction: int) -> tuple[Definitions, tuple[str, ...]]:
    """The assignments of the function at this place, and the variables of the innermost ``for`` around it."""
    found = source.path_at(code, instruction)
    if found is None:
        return {}, ()
    scope = source.scope_of(found)
    return _definitions(code, code.co_filename, scope), _around(found[found.index(scope) :])


@functools.lru_cache(maxsize=source.PLACES)
def _definitions(code: CodeType, file: str, scope: ast.AST) -> Definitions:
    """The assignments in ``scope``; ``code`` and ``file`` are of the cache's key."""
    found: dict[str, list[Definition]] = {}
    for node, path in source.walk(scope, []):
        for name, definition in _assigned(node):
            inside = any(isinstance(each, _LOOPS) for each in path)
            definition = definition._replace(in_loop=inside, around=_around(path))
            found.setdefault(name, []).append(definition)
    return found


def _around(path: Sequence[ast.AST]) -> tuple[str, ...]:
    """The variables of the innermost loop in ``path``, if it is a ``for``."""
    loop = next((node for node in reversed(path) if isinstance(node, _LOOPS)), None)
    if loop is None or isinstance(loop, ast.While):
        return ()
    return tuple(node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name))


def _assigned(node: ast.AST) -> Iterator[tuple[str, Definition]]:
    """The variables that ``node`` itself assigns."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _bound(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield from _bound(node.target, node.value)
    elif isinstance(node, ast.AugAssign):
        value = ast.BinOp(node.target, node.op, node.value)
        yield from _bound(node.target, value)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from _iterated(node.target, node.iter, "", _has_pairs(node.iter))
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _bound(node.optional_vars, node.context_expr)


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, Definition]]:
    if isinstance(target, ast.Name):
        yield target.id, Definition(value, False)
    elif isinstance(target, ast.Tuple | ast.List):
        values: Sequence[ast.expr] = [value] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            values = value.elts
        for part, each in zip(target.elts, values, strict=True):
            yield from _bound(part, each)


def _iterated(target: ast.expr, value: ast.expr, key: str, pairs: bool) -> Iterator[tuple[str, Definition]]:
    if isinstance(target, ast.Name):
        yield target.id, Definition(value, True, key)
    elif isinstance(target, ast.Tuple | ast.List):
        for number, part in enumerate(target.elts):
            first = target.elts[0]
            own = first.id if pairs and number and isinstance(first, ast.Name) else key
            yield from _iterated(part, value, own, pairs)


def _has_pairs(expression: ast.expr) -> bool:
    calls = (node.func for node in ast.walk(expression) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Attribute) and called.attr in _PAIRS for called in calls)


def trace(passed: Iterable[ast.expr], keyed: Iterable[ast.expr], definitions: Definitions) -> Flow:
    """Follow the values ``passed`` and the keys ``keyed`` back through ``definitions``."""
    flow = Flow()
    seen: set[tuple[int, bool]] = set()
    pending = [*((each, False) for each in passed), *((each, True) for each in keyed)]
    arithmetic: set[str] = set()
    while pending:
        expression, key = pending.pop()
        flow.computed = flow.computed or (key and references.is_computed(expression))
        # Of ``order[n]``, the list is not a key.
        containers = references.containers_in(expression) if key else ()
        for node in ast.walk(expression) if key else references.parts(expression):
            if not isinstance(node, ast.Name):
                if not key and not _is_item_of_result(node, definitions):
                    pending += [(each, True) for each in references.keys_of(node)]
                continue
            flow.names.add(node.id)
            if key and node in containers:
                continue
            if key:
                flow.keys.add(node.id)
            several = _is_one_of_several(definitions.get(node.id, ()))
            for definition in definitions.get(node.id, ()):
                if definition.key and not key:
                    flow.names.add(definition.key)
                    flow.keys.add(definition.key)
                if (id(definition), key) in seen or (key and definition.iterated):
                    continue
                seen.add((id(definition), key))
                if key and references.is_computed(definition.value):
                    arithmetic.add(node.id)
                    flow.computed = True
                else:
                    pending.append((definition.value, key))
                if definition.in_loop and (references.is_chosen(definition.value) or (several and not key)):
                    flow.chooses = True
                    flow.around.update(definition.around)
                elif definition.in_loop and not key and isinstance(definition.value, ast.Call):
                    flow.returned = True
                    flow.around_returned.update(definition.around)
    flow.keys -= arithmetic
    return flow


def _is_one_of_several(definitions: Sequence[Definition]) -> bool:
    """Whether a loop assigns one variable or another, in the branches of an ``if``."""
    values = [each.value for each in definitions if each.in_loop and not each.iterated]
    return len(values) > 1 and all(
        isinstance(each, ast.Name | ast.Attribute | ast.Subscript) for each in values
    )


def _is_item_of_result(node: ast.AST, definitions: Definitions) -> bool:
    """Whether ``node`` is an item of what a function has computed, as ``model(x)[label]``."""
    if not isinstance(node, ast.Subscript):
        return False
    container: ast.expr = node
    while isinstance(container, ast.Subscript | ast.Attribute):
        container = container.value
    if isinstance(container, ast.Name):
        found = definitions.get(container.id, ())
        return any(each.in_loop and references.is_result(each.value) for each in found)
    return references.is_result(container) and any(
        isinstance(each, ast.Name)
        and any(one.iterated or one.in_loop for one in definitions.get(each.id, ()))
        for each in ast.walk(container)
    )
