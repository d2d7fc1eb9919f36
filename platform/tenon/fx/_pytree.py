"""Flatten containers by a known spec, as generated code does with arguments that were traced as containers.

``tree_flatten_spec(tree, spec)`` reads only the children that ``spec`` lists, so that tracing can record it.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias

from tenon.errors import TreeError
from tenon.fx.immutable_collections import immutable_dict, immutable_list
from tenon.tensors.pytree import TreeSpec

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

#: ``flatten(tree, spec)``: the children of ``tree`` in the order of ``spec``.
FlattenSpec: TypeAlias = Callable[[Any, TreeSpec], list[Any]]
#: Whether a container has exactly the children of a spec.
MatchSpec: TypeAlias = Callable[[Any, TreeSpec], bool]

SUPPORTED_NODES: dict[Any, FlattenSpec] = {}  # a class, or "namedtuple"
SUPPORTED_NODES_EXACT_MATCH: dict[Any, MatchSpec | None] = {}  # the same


def register_pytree_flatten_spec(
    cls: Any,  # a class, or "namedtuple"
    flatten_fn_spec: FlattenSpec,
    flatten_fn_exact_match_spec: MatchSpec | None = None,
) -> None:
    """Register how ``tree_flatten_spec`` reads objects of ``cls``."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:  # leaves of any type
    """Return the leaves of ``pytree`` that ``spec`` names.

    >>> from tenon.tensors.pytree import tree_structure
    >>> tree_flatten_spec({"a": 1, "b": 2, "c": 3}, tree_structure({"c": 0, "a": 0}))
    [3, 1]
    """
    if spec.is_leaf():
        return [pytree]
    if spec.type not in SUPPORTED_NODES:
        raise TreeError(
            f"tree_flatten_spec: {spec.type} is not a registered container. Call"
            " tenon.fx._pytree.register_pytree_flatten_spec with a function that lists its children."
        )
    children = SUPPORTED_NODES[spec.type](pytree, spec)
    pairs = zip(children, spec.children_specs, strict=False)
    return [leaf for child, below in pairs for leaf in tree_flatten_spec(child, below)]


def _mapping(tree: Any, spec: TreeSpec) -> list[Any]:  # values of any type
    keys = spec.context if spec.type is immutable_dict else spec.context[0]
    return [tree[key] for key in keys]


def _sequence(tree: Any, spec: TreeSpec) -> list[Any]:  # elements of any type
    return [tree[k] for k in range(spec.num_children)]


def _same_length(tree: Any, spec: TreeSpec) -> bool:  # a container
    return len(tree) == spec.num_children


for _class in (dict, OrderedDict, defaultdict, immutable_dict):
    register_pytree_flatten_spec(_class, _mapping, _same_length)
for _kind in (list, tuple, immutable_list, "namedtuple"):
    register_pytree_flatten_spec(_kind, _sequence, _same_length)
