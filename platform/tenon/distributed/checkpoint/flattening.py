"""Nested state dicts as flat ones, and back: ``{"model": {"weight": w}}`` is ``{"model.weight": w}``.

Dicts are flattened always, lists only if a tensor or a dict is in them; other values are leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tenon.distributed.checkpoint.metadata import STATE_DICT_TYPE, Path, Paths
from tenon.errors import CheckpointError
from tenon.tensors.tensor import Tensor

#: Called with the path and the value of a leaf.
Visitor: TypeAlias = Callable[[Path, object], object]


class Leaf:
    """A value that is not flattened, whatever it is."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def flatten_state_dict(state_dict: Mapping[str, object]) -> tuple[STATE_DICT_TYPE, dict[str, Path]]:
    """The leaves by their paths, joined with dots, and the paths.

    >>> flatten_state_dict({"a": {"b": 1}, "c": [2, {"d": 3}]})
    ({'a.b': 1, 'c.0': 2, 'c.1.d': 3}, {'a.b': ('a', 'b'), 'c.0': ('c', 0), 'c.1.d': ('c', 1, 'd')})
    """
    flat: STATE_DICT_TYPE = {}
    paths: dict[str, Path] = {}

    def add(path: Path, value: object) -> None:
        name = ".".join(map(str, path))
        if name in flat:
            raise CheckpointError(
                f"duplicated flatten key {name}: the state dict has two values of this name, as"
                f" {list(paths[name])} and {list(path)}. Rename one, as a key with a dot in it."
            )
        flat[name], paths[name] = value, path

    traverse_state_dict(state_dict, add)
    return flat, paths


def unflatten_state_dict(state_dict: Mapping[str, object], mapping: Paths) -> STATE_DICT_TYPE:
    """The nested state dict of which ``flatten_state_dict`` returned ``(state_dict, mapping)``; tuples
    become lists."""
    nested: STATE_DICT_TYPE = {}
    for name, value in state_dict.items():
        set_element(nested, mapping[name], value)
    return nested


def traverse_state_dict(state_dict: Mapping[str, object], visitor: Visitor) -> None:
    """Call ``visitor(path, value)`` for every leaf."""
    pending: list[tuple[Path, object]] = [((str(key),), value) for key, value in state_dict.items()]
    pending.reverse()
    while pending:
        path, value = pending.pop()
        if isinstance(value, Mapping):
            pending += [((*path, str(key)), item) for key, item in reversed([*value.items()])]
        elif isinstance(value, list) and not _is_leaf(value):
            pending += [((*path, number), item) for number, item in reversed([*enumerate(value)])]
        else:
            visitor(path, value)


def _is_leaf(items: list[object]) -> bool:
    """Whether a list has no tensor and no dict in it."""
    return not any(
        isinstance(item, (Mapping, Tensor)) or (isinstance(item, list) and not _is_leaf(item))
        for item in items
    )


def set_element(root: STATE_DICT_TYPE, path: Path, value: object) -> None:
    """Put ``value`` at ``path``, creating dicts and lists on the way; lists are filled up with None."""
    container: Any = root  # a dict or a list
    for key, following in itertools.pairwise(path):
        fresh: dict[str, object] | list[object] = {} if isinstance(following, str) else []
        container = _child(container, key, fresh)
    _put(container, path[-1], value)


def _child(container: Any, key: str | int, fresh: object) -> object:  # a dict or a list
    """The container at ``key``; ``fresh`` if there is none yet."""
    if isinstance(key, str):
        return container.setdefault(key, fresh)
    if key >= len(container) or container[key] is None:
        _put(container, key, fresh)
    return container[key]


def _put(container: Any, key: str | int, value: object) -> None:  # a dict or a list
    if isinstance(key, int):
        container += [None] * (key + 1 - len(container))
    container[key] = value


def get_element(root: Mapping[str, object], path: Path, default: object = None) -> object:
    """The value at ``path``; ``default`` if there is none."""
    value: Any = root  # of any type
    for key in path:
        missing = key not in value if isinstance(value, Mapping) else True
        if isinstance(value, list) and isinstance(key, int):
            missing = not 0 <= key < len(value)
        if missing:
            return default
        value = value[key]
    return value
