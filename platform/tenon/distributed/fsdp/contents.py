"""The tensors in what a module takes and returns, also where ``pytree`` sees one leaf.

Models return objects of their own: dataclasses, and dictionaries or lists with more methods.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from tenon.dtypes import dtype
from tenon.engine.types import Nested
from tenon.tensors.pytree import tree_iter, tree_map
from tenon.tensors.tensor import Tensor


def tensors_in(tree: Nested) -> Iterator[Tensor]:
    """The tensors in ``tree``: in its containers, in dataclasses, and in subclasses of containers."""
    for leaf in tree_iter(tree):
        if isinstance(leaf, Tensor):
            yield leaf
        else:
            for _, value in _items(leaf):
                yield from tensors_in(value)


def cast(tree: Nested, kind: dtype) -> Any:  # the same structure
    """``tree`` with its floating tensors in ``kind``; objects that have one are copied."""

    def of_leaf(leaf: Nested) -> Nested:
        if isinstance(leaf, Tensor):
            return leaf.to(kind) if leaf.is_floating_point() and leaf.dtype != kind else leaf
        return _with_items(leaf, lambda value: cast(value, kind))

    return tree_map(of_leaf, tree)


def _items(leaf: Any) -> list[tuple[Any, Any]]:  # of any types, as users define them
    """The names or keys, and the values, of an object that is a leaf for ``pytree``."""
    if is_dataclass(leaf) and not isinstance(leaf, type):
        return [(f.name, getattr(leaf, f.name)) for f in fields(leaf) if hasattr(leaf, f.name)]
    if isinstance(leaf, dict):
        return list(leaf.items())
    if isinstance(leaf, list | tuple):
        return list(enumerate(leaf))
    return []


def _with_items(leaf: Any, change: Callable[[Any], Any]) -> Any:  # of any types
    """A copy of ``leaf`` with changed values; itself if none changes, and for a tuple, which has none set."""
    changed = [(key, new) for key, value in _items(leaf) if (new := change(value)) is not value]
    changed = [] if isinstance(leaf, tuple) else changed
    result = copy.copy(leaf) if changed else leaf
    for key, new in changed:
        if is_dataclass(leaf) and not isinstance(leaf, dict | list):
            object.__setattr__(result, key, new)  # also where it is frozen
        else:
            result[key] = new
    return result
