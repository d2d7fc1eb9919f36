"""Set the types of nodes that index a tuple or a list, from the annotation of the container."""

from __future__ import annotations

import operator
import typing
from typing import Any

from tenon.fx.graph import Graph
from tenon.fx.node import Node


def annotate_getitem_nodes(graph: Graph) -> None:
    """Set ``type`` of nodes that index or read a field of an annotated tuple, named tuple or list."""
    for node in graph.nodes:
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
            continue
        kind = node.args[0].type
        if node.type is not None or kind is None:
            continue
        if node.target is operator.getitem:
            item_type = _item_type(kind, node.args[1])
        elif node.target is getattr:
            item_type = getattr(kind, "__annotations__", {}).get(node.args[1])
        else:
            continue
        if item_type is not None:
            node.type = item_type


def _item_type(kind: Any, index: object) -> Any:  # annotations
    """Return the type of ``value[index]`` for a value of type ``kind``, None if it is unknown."""
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        if not isinstance(index, int):
            return None
        return kind.__annotations__.get(kind._fields[index])
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is list and parts:
        return parts[0]
    if origin is tuple and parts and isinstance(index, int):
        if len(parts) == 2 and parts[1] is Ellipsis:
            return parts[0]
        return parts[index] if -len(parts) <= index < len(parts) else None
    return None
