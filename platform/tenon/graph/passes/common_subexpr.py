"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from tenon.graph.graph import Graph, Node, Ref


def common_subexpr(graph: Graph) -> None:
    """Merge calls and scalars of the same op on the same arguments, except effects."""
    seen: dict[Hashable, Node] = {}
    changes: dict[Ref, Ref] = {}
    removed: set[Node] = set()
    for node in graph.nodes:
        if node.effect or node.kind in ("input", "constant") or node.function == "input":
            continue
        if changes:
            node.args = tuple(changes.get(a, a) if a.__class__ is Ref else a for a in node.args)
        key = (node.kind, node.op, node.function, frozen(node.args), frozen(node.attrs))
        first = seen.setdefault(key, node)
        if first is not node:
            removed.add(node)
            for index in range(max(len(node.avals), 1)):
                changes[node.out(index)] = first.out(index)
    graph.replace(changes)
    graph.erase(removed)


def frozen(value: object) -> Hashable:
    """Return a hashable key of an attr or argument; keys are equal only if value and type are."""
    if isinstance(value, dict):
        return tuple((k, frozen(v)) for k, v in sorted(value.items()))
    if value.__class__ is Ref:
        return value
    if isinstance(value, tuple | list):
        return (value.__class__, *map(frozen, value))
    if isinstance(value, slice):
        return ("slice", frozen(value.start), frozen(value.stop), frozen(value.step))
    if isinstance(value, bool | int | float | complex):
        return (value.__class__, repr(value))
    if isinstance(value, str | np.dtype) or value is None or value is Ellipsis:
        return value
    try:
        return (value.__class__, hash(value), value)
    except TypeError:
        return ("object", id(value))
