"""Places of integers in a node: in its shapes, arguments and attrs, however deeply nested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tenon.engine.aval import Aval
from tenon.errors import GraphError
from tenon.export.sizes import Expression
from tenon.graph.graph import Node, NodeArgument, Ref
from tenon.random.draws import Draw

#: ``("shape", output, axis)``, ``("args", 1)``, ``("attrs", "shape", 0)``: strings and integers.
Path: TypeAlias = tuple[Any, ...]


def integers(node: Node) -> Iterator[tuple[Path, int]]:
    """Yield the integers in shapes, arguments and attrs, with their places."""
    for path, value in _values(node):
        if value.__class__ is int:
            yield path, value


def expressions(node: Node) -> Iterator[tuple[Path, Expression]]:
    """Yield the expressions of symbols in shapes, arguments and attrs, with their places."""
    for path, value in _values(node):
        if isinstance(value, Expression):
            yield path, value


def integers_in(
    args: Sequence[NodeArgument], attrs: Mapping[str, NodeArgument]
) -> Iterator[tuple[Path, int]]:
    """Yield the integers in arguments and attrs, also of subclasses of int, with their places."""
    for path, value in _of_call(args, attrs):
        if isinstance(value, int) and not isinstance(value, bool):
            yield path, value


def _values(node: Node) -> Iterator[tuple[Path, NodeArgument]]:
    for index, aval in enumerate(node.avals):
        for axis, extent in enumerate(aval.shape):
            yield ("shape", index, axis), extent
    yield from _of_call(node.args, node.attrs)


def _of_call(
    args: Sequence[NodeArgument], attrs: Mapping[str, NodeArgument]
) -> Iterator[tuple[Path, NodeArgument]]:
    for index, arg in enumerate(args):
        yield from _inside(("args", index), arg)
    for name, value in attrs.items():
        yield from _inside(("attrs", name), value)


def _inside(path: Path, value: NodeArgument) -> Iterator[tuple[Path, NodeArgument]]:
    if value.__class__ is Ref:
        return
    if isinstance(value, tuple | list):
        for index, each in enumerate(value):
            yield from _inside((*path, index), each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _inside((*path, key), each)
    elif isinstance(value, slice):
        for name in ("start", "stop", "step"):
            yield from _inside((*path, name), getattr(value, name))
    elif isinstance(value, Draw):
        yield from _inside((*path, "shape"), value.shape)
        yield from _inside((*path, "arguments"), value.arguments)
    else:
        yield path, value


def put(node: Node, changes: Mapping[Path, object]) -> None:
    """Put values at their places in ``node``."""
    if not changes:
        return
    shapes: list[list[Any]] = [list(aval.shape) for aval in node.avals]  # of integers or expressions
    for path, value in changes.items():
        if path[0] == "shape":
            shapes[path[1]][path[2]] = value
        elif path[0] == "args":
            args = list(node.args)
            args[path[1]] = _changed(args[path[1]], path[2:], value)
            node.args = tuple(args)
        elif path[0] == "attrs":
            node.attrs = node.attrs | {path[1]: _changed(node.attrs[path[1]], path[2:], value)}
        else:
            raise GraphError(f"{node!r} has no value at {path!r}.")
    node.avals = tuple(Aval(tuple(s), a.dtype) for s, a in zip(shapes, node.avals, strict=True))


def _changed(container: Any, path: Path, value: object) -> Any:  # a nest of any type
    """Return ``container`` with ``value`` at ``path``."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(container, dict):
        return container | {head: _changed(container[head], rest, value)}
    if isinstance(container, slice):
        parts = {n: getattr(container, n) for n in ("start", "stop", "step")}
        parts[head] = _changed(parts[head], rest, value)
        return slice(parts["start"], parts["stop"], parts["step"])
    if isinstance(container, Draw):
        return replace(container, **{head: _changed(getattr(container, head), rest, value)})
    items = list(container)
    items[head] = _changed(items[head], rest, value)
    return tuple(items) if isinstance(container, tuple) else items
