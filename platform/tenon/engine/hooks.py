"""Hooks on tensors and nodes: registration, and running them over a gradient."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tenon.engine.generation import Generation
from tenon.engine.handle import RemovableHandle
from tenon.engine.value import Value
from tenon.errors import GradError


def register_in(hooks: Any, hook: Callable[..., Any]) -> RemovableHandle:
    """Add ``hook`` to ``hooks``; the handle removes it."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def new_hooks() -> OrderedDict[int, Callable[..., Any]]:
    """An empty registry (an OrderedDict, which can be weakly referenced)."""
    return OrderedDict()


class LeafHooks(OrderedDict[int, Callable[..., Any]]):
    """The hooks of a leaf; every change increments ``Generation.value``, to invalidate compiled code."""

    def __setitem__(self, key: int, hook: Callable[..., Any]) -> None:
        super().__setitem__(key, hook)
        Generation.value += 1

    def __delitem__(self, key: int) -> None:
        super().__delitem__(key)
        Generation.value += 1


def tensor_hooks(tensor: Any) -> Any:
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


def run_tensor_hooks(hooks: Any, grad: Any, backend: Any) -> Any:
    """Run ``hooks`` on ``grad`` and return the result: an array for an array, a tensor for a tensor. An
    undefined gradient is passed to hooks as None."""
    for hook in list(hooks.values()):
        given = grad if grad is None or isinstance(grad, Value) else Value.make(grad, backend)
        result = hook(given)
        if result is None:
            continue
        if not isinstance(result, Value):
            raise GradError(f"a tensor hook returned {type(result).__name__}; expected None or a Tensor.")
        if given is not None and tuple(result.raw.shape) != tuple(given.raw.shape):
            raise GradError(
                f"hook '{getattr(hook, '__name__', hook)}' has changed the size of value: "
                f"{list(given.raw.shape)} became {list(result.raw.shape)}."
            )
        grad = result if isinstance(grad, Value) else result.raw
    return grad
