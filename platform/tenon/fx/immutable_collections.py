"""Immutable lists and dictionaries, of which the arguments of nodes consist.

In-place changes of arguments would bypass the graph's record of users; assign a node's ``args`` and
``kwargs`` as a whole instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar

from tenon.tensors.pytree import register_pytree_node

__all__ = ["immutable_dict", "immutable_list"]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the"
        " kwargs or args of a tenon.fx.Node object, instead create a new copy of it and assign the copy to"
        " the node:\n    new_args = ...  # copy and mutate args\n    node.args = new_args\n"
    )


class immutable_list(list[T]):
    """A list that cannot be changed; its elements can."""

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[object, ...]:
        return immutable_list, (tuple(self),)


class immutable_dict(dict[K, V]):
    """A dictionary that cannot be changed; its values can."""

    clear = pop = popitem = setdefault = update = _refuse
    __delitem__ = __ior__ = __setitem__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[object, ...]:
        return immutable_dict, (tuple(self.items()),)


def _parts(tree: dict[K, V]) -> tuple[list[V], list[K]]:
    return list(tree.values()), list(tree)


def _whole(values: Iterable[Any], keys: Iterable[Any]) -> immutable_dict[Any, Any]:  # of any types
    return immutable_dict(zip(keys, values, strict=True))


register_pytree_node(immutable_list, lambda tree: (list(tree), None), lambda parts, _: immutable_list(parts))
register_pytree_node(immutable_dict, _parts, _whole)
