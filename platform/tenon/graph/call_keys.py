"""Keys of calls: the structure, shapes, dtypes and plain values by which compiled programs are looked up."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Hashable

from tenon.engine.aval import aval_of
from tenon.engine.grad_mode import MODE
from tenon.engine.types import Nested
from tenon.engine.value import Value
from tenon.graph.recording import Leaves
from tenon.tensors.pytree import REGISTERED, TreeSpec, tree_flatten


def flattened(args: tuple[Nested, ...], kwargs: dict[str, Nested]) -> tuple[Leaves, Hashable]:
    """Return the leaves of the arguments and their structure, which is their number if they are not
    nested."""
    if not kwargs and not any(
        a.__class__ in _CONTAINERS or a.__class__ in REGISTERED or hasattr(a, "_fields") for a in args
    ):
        return list(args), len(args)
    leaves, spec = tree_flatten((args, kwargs))
    return leaves, _hashable(spec)


def described(leaves: Leaves) -> str:
    """Describe the arguments of a call for messages."""
    texts = [repr(aval_of(leaf.raw)) if isinstance(leaf, Value) else repr(leaf)[:40] for leaf in leaves[:6]]
    mode = "" if MODE.enabled else ", without gradients"
    return f"({', '.join(texts)}{', ...' if len(leaves) > 6 else ''}){mode}"


_CONTAINERS = frozenset((tuple, list, dict, OrderedDict, defaultdict))


def _hashable(spec: TreeSpec) -> Hashable:
    """Return the structure in hashable form."""
    children = tuple(_hashable(child) for child in spec.children_specs)
    mapping = spec.type in _CONTAINERS and spec.context is not None
    keys = tuple(spec.context[0]) if mapping else spec.context
    return (spec.type, keys, children)


def key_of(leaves: Leaves) -> tuple[Hashable, ...]:
    """Return the part of a case's key for the leaves: shapes and dtypes of tensors, and other values
    themselves."""
    seen: dict[int, int] = {}
    return tuple(
        (
            (
                leaf.__class__,
                leaf.raw.shape,
                leaf.raw.dtype,
                leaf._track and (leaf._node is not None, getattr(leaf, "_grad", None) is not None),
                leaf._backend.name,
                seen.setdefault(id(leaf), i),
            )
            if isinstance(leaf, Value)
            else (leaf.__class__, leaf if leaf.__class__ is not float or leaf else repr(leaf))
        )
        for i, leaf in enumerate(leaves)
    )
