"""Leaves of nested containers with the path that leads to each: ``['encoder'][0].weight``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.errors import TreeError
from tenon.tensors.pytree import (
    REGISTERED,
    Context,
    LeafTest,
    TreeSpec,
    tree_children,
    tree_flatten,
    tree_unflatten,
)

if TYPE_CHECKING:
    from tenon.engine.types import Nested


@dataclass(frozen=True)
class SequenceKey:
    """A step into a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclass(frozen=True)
class MappingKey:
    """A step into a mapping."""

    key: object

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True)
class GetAttrKey:
    """A step to an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


#: The keys that lead to a leaf.
Path: TypeAlias = tuple[Any, ...]


def keystr(kp: Path) -> str:
    """Return a path as Python writes it after the name of the outermost container."""
    return "".join(map(str, kp))


def tree_flatten_with_path(
    tree: Nested, is_leaf: LeafTest | None = None
) -> tuple[list[tuple[Path, Nested]], TreeSpec]:
    """Return the list of ``(path, leaf)`` of all leaves, and the ``TreeSpec``.

    >>> pairs, _ = tree_flatten_with_path({"a": 1, "b": (2, [3])})
    >>> [(keystr(path), leaf) for path, leaf in pairs]
    [("['a']", 1), ("['b'][0]", 2), ("['b'][1][0]", 3)]
    """
    pairs: list[tuple[Path, Nested]] = []
    _walk(tree, (), is_leaf, pairs)
    return pairs, tree_flatten(tree, is_leaf)[1]


def tree_leaves_with_path(tree: Nested, is_leaf: LeafTest | None = None) -> list[tuple[Path, Nested]]:
    """Return the list of ``(path, leaf)`` of all leaves."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(
    func: Callable[..., object], tree: Nested, *rests: Nested, is_leaf: LeafTest | None = None
) -> Nested:
    """Return ``tree`` with each leaf replaced by ``func(path, leaf, ...)``; further arguments are the leaves
    of ``rests`` at its place."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = []
    for rest in rests:
        leaves, own = tree_flatten(rest, is_leaf)
        if own != spec:
            raise TreeError(f"tree_map_with_path: the structures differ, {spec} and {own}.")
        others.append(leaves)
    values = [func(*pair, *rest) for pair, *rest in zip(pairs, *others, strict=True)]
    return tree_unflatten(values, spec)


def _walk(tree: Nested, path: Path, is_leaf: LeafTest | None, pairs: list[tuple[Path, Nested]]) -> None:
    """Append ``(path, leaf)`` of every leaf of ``tree``, which is at ``path``, to ``pairs``."""
    parts = None if is_leaf is not None and is_leaf(tree) else tree_children(tree)
    if parts is None:
        pairs.append((path, tree))
        return
    for key, child in _keyed(tree, *parts):
        _walk(child, (*path, key), is_leaf, pairs)


def _keyed(
    tree: Nested, kind: type | str, context: Context, children: list[Nested]
) -> list[tuple[object, Nested]]:
    if kind in REGISTERED:
        flatten = REGISTERED[kind].flatten_with_keys
        if flatten is None:
            raise TreeError(
                f"Did not find a flatten_with_keys_fn for type: {kind}. Pass one to register_pytree_node."
            )
        return list(flatten(tree)[0])
    if kind == "namedtuple":
        keys: list[object] = [GetAttrKey(name) for name in context._fields]
    elif context is not None:
        keys = [MappingKey(key) for key in context[0]]
    else:
        keys = [SequenceKey(i) for i in range(len(children))]
    return list(zip(keys, children, strict=True))


__all__ = [
    "GetAttrKey",
    "MappingKey",
    "SequenceKey",
    "keystr",
    "tree_flatten_with_path",
    "tree_leaves_with_path",
    "tree_map_with_path",
]
