"""Flatten nested containers to a list of leaves and a ``TreeSpec``, and rebuild them.

Containers are tuples, named tuples, lists, dictionaries (``OrderedDict`` and ``defaultdict`` too) and objects
of classes that were registered; everything else, subclasses of these included, is a leaf.
``tenon.utils._pytree`` exports the names under PyTorch's path.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.errors import TreeError

if TYPE_CHECKING:
    from tenon.engine.types import Nested

#: Whether an object counts as a leaf, or another predicate of leaves.
LeafTest: TypeAlias = Callable[[Any], bool]
#: What a container's class needs besides the children to rebuild it: keys, a class, a default factory.
Context: TypeAlias = Any
#: A type or tuple of types as for isinstance, or a predicate.
TypeTest: TypeAlias = type | tuple[type, ...] | LeafTest
#: Splits a container: ``flatten(object)`` returns its children and a context.
Flatten: TypeAlias = Callable[[Any], tuple[Any, Any]]
#: Rebuilds a container: ``unflatten(children, context)`` returns it.
Unflatten: TypeAlias = Callable[[Any, Any], Any]
_MAPPINGS = (dict, OrderedDict, defaultdict)


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """The structure of nested containers: ``type`` (None: a leaf), ``context`` (keys, class) and children."""

    type: Any  # a class, or "namedtuple"; None for a leaf
    context: Context
    children_specs: tuple[TreeSpec, ...]

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return 1 if self.type is None else sum(child.num_leaves for child in self.children_specs)

    @property
    def num_children(self) -> int:
        """The number of children of the outermost container."""
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether this is a single leaf."""
        return self.type is None


LEAF = TreeSpec(None, None, ())


@dataclass(frozen=True, slots=True)
class Node:
    """The functions that flatten and rebuild objects of a registered class."""

    flatten: Flatten
    unflatten: Unflatten
    flatten_with_keys: Flatten | None


REGISTERED: dict[type, Node] = {}


def register_pytree_node(
    cls: type,
    flatten_fn: Flatten,
    unflatten_fn: Unflatten,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[..., object] | None = None,
    from_dumpable_context: Callable[..., object] | None = None,
    flatten_with_keys_fn: Flatten | None = None,
) -> None:
    """Register ``cls`` as a container: ``flatten_fn(object)`` returns its children and a context,
    ``unflatten_fn(children, context)`` an object. The arguments for PyTorch's serialization are ignored."""
    if cls in REGISTERED or cls in (*_MAPPINGS, list, tuple):
        raise TreeError(f"{cls} is already registered as pytree node. Register each class once.")
    REGISTERED[cls] = Node(flatten_fn, unflatten_fn, flatten_with_keys_fn)


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Register a dataclass as a container of its fields; ``serialized_type_name`` is ignored.

    >>> import tenon
    >>> @dataclass
    ... class Output:
    ...     loss: object
    >>> register_dataclass(Output)
    >>> tenon.export.capture(lambda x: Output(x * 2), tenon.ones(1)).run(tenon.zeros(1))
    Output(loss=tensor([0.]))
    """
    if not (isinstance(cls, type) and is_dataclass(cls)):
        raise TreeError(f"Only dataclasses can be registered with this function, not {cls!r:.200}.")
    names = [each.name for each in fields(cls) if each.init]
    register_pytree_node(
        cls,
        lambda tree: ([getattr(tree, name) for name in names], None),
        lambda parts, _: cls(**dict(zip(names, parts, strict=True))),
    )


def tree_children(tree: Nested) -> tuple[type | str, Context, list[Nested]] | None:
    """Return ``(type, context, children)`` of a container, None for a leaf."""
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


def tree_flatten(tree: Nested, is_leaf: LeafTest | None = None) -> tuple[list[Nested], TreeSpec]:
    """Return the list of the leaves of ``tree``, from left to right, and its ``TreeSpec``.

    >>> leaves, spec = tree_flatten({"a": 1, "b": (2, [3])})
    >>> leaves
    [1, 2, 3]
    >>> tree_unflatten([x * 10 for x in leaves], spec)
    {'a': 10, 'b': (20, [30])}
    """
    parts = None if is_leaf is not None and is_leaf(tree) else tree_children(tree)
    if parts is None:
        return [tree], LEAF
    kind, context, children = parts
    leaves: list[Nested] = []
    specs = []
    for child in children:
        own, spec = tree_flatten(child, is_leaf)
        leaves.extend(own)
        specs.append(spec)
    return leaves, TreeSpec(kind, context, tuple(specs))


def tree_unflatten(leaves: Sequence[object], treespec: TreeSpec) -> Nested:
    """Rebuild the containers of ``treespec`` with ``leaves``; TreeError if their number differs."""
    values = list(leaves)
    if len(values) != treespec.num_leaves:
        raise TreeError(
            f"tree_unflatten: got {len(values)} leaves for a structure of {treespec.num_leaves}. "
            f"Pass as many as tree_flatten returned."
        )
    return _build(iter(values), treespec)


def _build(leaves: Iterator[object], spec: TreeSpec) -> Nested:
    if spec.type is None:
        return next(leaves)
    children = [_build(leaves, child) for child in spec.children_specs]
    if spec.type in _MAPPINGS:
        keys, factory = spec.context
        pairs = zip(keys, children, strict=True)
        return defaultdict(factory, pairs) if spec.type is defaultdict else spec.type(pairs)
    if spec.type == "namedtuple":
        make = getattr(spec.context, "_make", None)  # named results too, which take one sequence
        return spec.context(*children) if make is None else make(children)
    if spec.type in REGISTERED:
        return REGISTERED[spec.type].unflatten(children, spec.context)
    return spec.type(children)


def tree_map(
    func: Callable[..., object], tree: Nested, *rests: Nested, is_leaf: LeafTest | None = None
) -> Nested:
    """Return ``tree`` with each leaf replaced by ``func`` of it and of the leaves of ``rests`` at its place.

    TreeError unless ``rests`` have the structure of ``tree``.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [_leaves_like(rest, spec, is_leaf) for rest in rests]
    return tree_unflatten([func(*each) for each in zip(leaves, *others, strict=True)], spec)


def _leaves_like(tree: Nested, spec: TreeSpec, is_leaf: LeafTest | None) -> list[Nested]:
    leaves, own = tree_flatten(tree, is_leaf)
    if own != spec:
        raise TreeError(
            f"tree_map: the structures differ, {spec} and {own}. Pass containers of one structure."
        )
    return leaves


def tree_leaves(tree: Nested, is_leaf: LeafTest | None = None) -> list[Nested]:
    """Return the list of the leaves of ``tree``, from left to right."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Nested, is_leaf: LeafTest | None = None) -> Iterator[Nested]:
    """Return an iterator over the leaves of ``tree``, from left to right."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Nested, is_leaf: LeafTest | None = None) -> TreeSpec:
    """Return the ``TreeSpec`` of ``tree``."""
    return tree_flatten(tree, is_leaf)[1]


def tree_is_leaf(tree: Nested, is_leaf: LeafTest | None = None) -> bool:
    """Return whether ``tree`` is a single leaf, not a container."""
    return (is_leaf is not None and is_leaf(tree)) or tree_children(tree) is None


def tree_map_(
    func: Callable[..., object], tree: Nested, *rests: Nested, is_leaf: LeafTest | None = None
) -> Nested:
    """Call ``func`` with each leaf and the leaves of ``rests`` at its position; return ``tree`` itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_all(pred: LeafTest, tree: Nested, is_leaf: LeafTest | None = None) -> bool:
    """Return whether ``pred`` is true of all leaves."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: LeafTest, tree: Nested, is_leaf: LeafTest | None = None) -> bool:
    """Return whether ``pred`` is true of at least one leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(
    type_or_types: type | tuple[type, ...], pred: LeafTest, tree: Nested, is_leaf: LeafTest | None = None
) -> bool:
    """Return whether ``pred`` is true of all leaves of a type."""
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(
    type_or_types: type | tuple[type, ...], pred: LeafTest, tree: Nested, is_leaf: LeafTest | None = None
) -> bool:
    """Return whether ``pred`` is true of at least one leaf of a type."""
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_map_only(
    type_or_types: TypeTest, func: Callable[[Nested], object], tree: Nested, is_leaf: LeafTest | None = None
) -> Nested:
    """Return ``tree`` with ``func`` applied to the leaves of a type, or of which a predicate is true."""
    is_predicate = callable(type_or_types) and not isinstance(type_or_types, type)

    def each(leaf: object) -> object:
        test: Any = type_or_types  # mypy cannot tell a predicate from a type by ``is_predicate``
        return func(leaf) if (test(leaf) if is_predicate else isinstance(leaf, test)) else leaf

    return tree_map(each, tree, is_leaf=is_leaf)
