"""PyTorch's module ``torch.utils._pytree``: nested containers; the code is in ``tenon.tensors.pytree``."""

from typing import Any, TypeAlias

from tenon.tensors.pytree import (
    LEAF,
    TreeSpec,
    register_pytree_node,
    tree_all,
    tree_all_only,
    tree_any,
    tree_any_only,
    tree_flatten,
    tree_is_leaf,
    tree_iter,
    tree_leaves,
    tree_map,
    tree_map_,
    tree_map_only,
    tree_structure,
    tree_unflatten,
)
from tenon.tensors.pytree_paths import (
    GetAttrKey,
    MappingKey,
    SequenceKey,
    keystr,
    tree_flatten_with_path,
    tree_leaves_with_path,
    tree_map_with_path,
)

__all__ = [
    "GetAttrKey",
    "LeafSpec",
    "MappingKey",
    "PyTree",
    "SequenceKey",
    "TreeSpec",
    "keystr",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
]

#: Containers of any depth: Python has no type for a tree of any leaves.
PyTree: TypeAlias = Any
_register_pytree_node = register_pytree_node


def LeafSpec() -> TreeSpec:
    """Return the spec of a leaf."""
    return LEAF
