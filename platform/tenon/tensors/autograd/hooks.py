"""Register hooks on tensors and nodes. ``engine/hooks.py`` runs them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from tenon.engine.value import Value
from tenon.tensors.autograd.handles import Registry, RemovableHandle
from tenon.tensors.generation import Generation


def register_in(hooks: Registry, hook: Callable[..., object]) -> RemovableHandle:
    """Add ``hook`` to ``hooks``; return the handle that removes it."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def new_hooks() -> OrderedDict[int, Callable[..., object]]:
    """Return an empty registry: an OrderedDict, which unlike a dict can be weakly referenced."""
    return OrderedDict()


class LeafHooks(OrderedDict[int, Callable[..., object]]):
    """The hooks of a leaf; every change increments ``Generation.value``, to invalidate compiled code."""

    def __setitem__(self, key: int, hook: Callable[..., object]) -> None:
        super().__setitem__(key, hook)
        Generation.value += 1

    def __delitem__(self, key: int) -> None:
        super().__delitem__(key)
        Generation.value += 1


def tensor_hooks(tensor: Value) -> Registry:
    """The registry of hooks on ``tensor``'s gradient: on its node, or on the leaf itself."""
    if tensor._view is not None:
        tensor._refresh()
    node = tensor._node
    if node is None:
        hooks = tensor.__dict__.get("_hooks")
        if hooks is None:
            hooks = tensor.__dict__["_hooks"] = LeafHooks()
        return hooks
    if node.hooks is None:
        node.hooks = {}
        node.watched = True
    return node.hooks.setdefault(tensor._index, new_hooks())
