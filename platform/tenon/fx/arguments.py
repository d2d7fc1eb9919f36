"""Arguments of nodes: nested tuples, lists, dictionaries and slices, walked and printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tenon.fx.immutable_collections import immutable_dict, immutable_list
from tenon.tensors.named_results import NamedResult

#: A node, a plain value, or tuples, lists, dictionaries and slices of them.
Nested: TypeAlias = Any  # of any depth
#: A function of any parameters and result.
Function: TypeAlias = Callable[..., Any]  # any
#: Values of any type by name, arguments or globals.
Named: TypeAlias = dict[str, Any]  # of any type


def is_named_tuple(value: object) -> bool:
    """Whether ``value`` is a named tuple; named results, as of ``x.max(1)``, are plain tuples in PyTorch."""
    return isinstance(value, tuple) and hasattr(value, "_fields") and not isinstance(value, NamedResult)


def aggregate(value: Nested, function: Callable[[Nested], Nested]) -> Nested:
    """Return ``value`` with ``function`` applied to its leaves; lists and dictionaries become immutable
    ones."""
    if isinstance(value, tuple):
        items = [aggregate(item, function) for item in value]
        return type(value)(*items) if is_named_tuple(value) else tuple(items)
    if isinstance(value, list):
        return immutable_list([aggregate(item, function) for item in value])
    if isinstance(value, dict):
        return immutable_dict([(key, aggregate(item, function)) for key, item in value.items()])
    if isinstance(value, slice):
        ends = (value.start, value.stop, value.step)
        return slice(*(aggregate(end, function) for end in ends))
    return function(value)


def format_arg(value: Nested, most: float = float("inf")) -> str:
    """Return an argument as it is printed in a graph."""
    custom_repr: Callable[[], str] | None = getattr(value, "_custom_fx_repr_fn", None)
    if custom_repr is not None:
        return custom_repr()
    if isinstance(value, (list, tuple)):
        items = [format_arg(item, most) for k, item in enumerate(value) if k < most]
        if len(value) > most:
            items.append(f"...[total_len={len(value)}]")
        text = ", ".join(items)
        if isinstance(value, list):
            return f"[{text}]"
        return f"({text},)" if len(value) == 1 else f"({text})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {format_arg(item, most)}" for key, item in value.items()) + "}"
    return f"%{value}" if hasattr(value, "all_input_nodes") else str(value)
