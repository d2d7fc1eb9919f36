"""Nested containers as a flat list of leaves and a ``TreeSpec`` that puts them together again.

Containers are tuples, named tuples, lists, dictionaries (``OrderedDict`` and ``defaultdict`` too) and objects
of classes that were registered; everything else, subclasses of these included, is a leaf.
``tenon.utils._pytree`` offers the names under the path that PyTorch code imports.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tenon.errors import TreeError

_MAPPINGS = (dict, OrderedDict, defaultdict)


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """The shape of a nest: ``type`` (None for a leaf), ``context`` (keys, named tuple class) and children."""

    type: Any
    context: Any
    children_specs: tuple[TreeSpec, ...]

    @property
    def num_leaves(self) -> int:
        """How many leaves the nest has."""
        return 1 if self.type is None else sum(child.num_leaves for child in self.children_specs)

    @property
    def num_children(self) -> int:
        """How many direct children the outermost container has."""
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether this is a single leaf."""
        return self.type is None


LEAF = TreeSpec(None, None, ())


@dataclass(frozen=True, slots=True)
class Node:
    """How objects of a registered class are taken apart and put together."""

    flatten: Callable[[Any], tuple[Any, Any]]
    unflatten: Callable[[Any, Any], Any]
    flatten_with_keys: Callable[[Any], tuple[Any, Any]] | None


REGISTERED: dict[type, Node] = {}


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Any, Any]],
    unflatten_fn: Callable[[Any, Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Any = None,
    from_dumpable_context: Any = None,
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Any]] | None = None,
) -> None:
    """Make objects of ``cls`` containers: ``flatten_fn(object)`` gives their children and a context,
    ``unflatten_fn(children, context)`` an object. How PyTorch writes them to files is not asked for here."""
    if cls in REGISTERED or cls in (*_MAPPINGS, list, tuple):
        raise TreeError(f"{cls} is already registered as pytree node. Register each class once.")
    REGISTERED[cls] = Node(flatten_fn, unflatten_fn, flatten_with_keys_fn)


def _children(tree: Any) -> tuple[Any, Any, list[Any]] | None:
    """``(type, context, children)`` of a container, None for a leaf."""
    kind = type(tree)
    if kind in _MAPPINGS:
        keys = list(tree)
        factory = tree.default_factory if kind is defaultdict else None
        return kind, (keys, factory), [tree[key] for key in keys]
    if kind is list or kind is tuple:
        return kind, None, list(tree)
    if kind in REGISTERED:
        children, context = REGISTERED[kind].flatten(tree)
        return kind, context, list(children)
    if isinstance(tree, tuple) and hasattr(kind, "_fields"):
        return "namedtuple", kind, list(tree)
    return None


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of ``tree`` from left to right, and its spec.

    >>> leaves, spec = tree_flatten({"a": 1, "b": (2, [3])})
    >>> leaves
    [1, 2, 3]
    >>> tree_unflatten([x * 10 for x in leaves], spec)
    {'a': 10, 'b': (20, [30])}
    """
    found = None if is_leaf is not None and is_leaf(tree) else _children(tree)
    if found is None:
        return [tree], LEAF
    kind, context, children = found
    leaves: list[Any] = []
    specs = []
    for child in children:
        own, spec = tree_flatten(child, is_leaf)
        leaves.extend(own)
        specs.append(spec)
    return leaves, TreeSpec(kind, context, tuple(specs))


def tree_unflatten(leaves: Sequence[Any], treespec: TreeSpec) -> Any:
    """The nest of shape ``treespec`` with ``leaves`` in it."""
    values = list(leaves)
    if len(values) != treespec.num_leaves:
        raise TreeError(
            f"tree_unflatten: {len(values)} leaves were given for a nest of {treespec.num_leaves}. "
            f"Pass as many as tree_flatten returned."
        )
    return _build(iter(values), treespec)


def _build(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    children = [_build(leaves, child) for child in spec.children_specs]
    if spec.type in _MAPPINGS:
        keys, factory = spec.context
        pairs = zip(keys, children, strict=True)
        return defaultdict(factory, pairs) if spec.type is defaultdict else spec.type(pairs)
    if spec.type == "namedtuple":
        return spec.context(*children)
    if spec.type in REGISTERED:
        return REGISTERED[spec.type].unflatten(children, spec.context)
    return spec.type(children)


def tree_map(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """``tree`` with ``func`` applied to every leaf, and to the leaves of ``rests`` in the same places."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [_same(rest, spec, is_leaf) for rest in rests]
    return tree_unflatten([func(*each) for each in zip(leaves, *others, strict=True)], spec)


def _same(tree: Any, spec: TreeSpec, is_leaf: Callable[[Any], bool] | None) -> list[Any]:
    leaves, own = tree_flatten(tree, is_leaf)
    if own != spec:
        raise TreeError(
            f"tree_map: the nests differ in shape, {spec} and {own}. Pass nests of the same shape."
        )
    return leaves


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of ``tree`` from left to right."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """The leaves of ``tree``, one after the other."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The spec of ``tree``."""
    return tree_flatten(tree, is_leaf)[1]


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether ``tree`` is a leaf itself."""
    return (is_leaf is not None and is_leaf(tree)) or _children(tree) is None


def tree_map_(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """``tree`` itself, after a call of ``func`` with every leaf (and those of ``rests`` in its place)."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether ``pred`` holds for all leaves."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether ``pred`` holds for a leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(
    type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> bool:
    """Whether ``pred`` holds for all leaves of a type."""
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(
    type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> bool:
    """Whether ``pred`` holds for a leaf of a type."""
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_map_only(
    type_or_types: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """``tree`` with ``func`` applied to the leaves of a type, or for which a given question holds."""
    asks = callable(type_or_types) and not isinstance(type_or_types, type)

    def each(leaf: Any) -> Any:
        chosen = type_or_types(leaf) if asks else isinstance(leaf, type_or_types)
        return func(leaf) if chosen else leaf

    return tree_map(each, tree, is_leaf=is_leaf)
