"""Hooks on what the tape saves: ``pack`` when an op has run, ``unpack`` when its gradient is computed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tenon.core import watch
from tenon.core.aval import Aval
from tenon.core.grad_mode import MODE
from tenon.core.op import table
from tenon.core.value import Value

#: Key of the saved output among a node's packed values; inputs have their position.
_OUT = -1


class _Stack(threading.local):
    hooks: tuple[SavedTensorsHooks, ...] = ()


_STACK = _Stack()


def innermost() -> SavedTensorsHooks | None:
    """The hooks that what is saved now goes through."""
    return _STACK.hooks[-1] if _STACK.hooks else None


class SavedTensorsHooks:
    """While active in a thread, every value that the tape saves goes through both hooks."""

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        _restack((*_STACK.hooks, self))

    def __exit__(self, *exc: object) -> None:
        _restack(_STACK.hooks[:-1])


def _restack(hooks: tuple[SavedTensorsHooks, ...]) -> None:
    """Put ``hooks`` in place of those of this thread; the tape tells of new nodes while there are any."""
    if hooks and not _STACK.hooks:
        watch.add(_pack)
    elif _STACK.hooks and not hooks:
        watch.remove(_pack)
    _STACK.hooks = hooks


class Packed:
    """One saved value as ``pack_hook`` made it, and where its history goes."""

    __slots__ = ("edge", "packed", "unpack_hook")

    def __init__(self, hooks: SavedTensorsHooks, tensor: Any) -> None:
        self.unpack_hook = hooks.unpack_hook
        self.edge = (
            None
            if not tensor._track
            else (tensor, _OUT)
            if tensor._node is None
            else (tensor._node, tensor._index)
        )
        given = Value.make(tensor.raw, tensor._backend)
        self.packed = _in_mode(False, hooks.pack_hook, given)

    def unpack(self) -> Any:
        """The tensor again, with its history."""
        found = _in_mode(False, self.unpack_hook, self.packed)
        made = Value.make(found.raw, found._backend)
        if self.edge is None:
            return made
        target, index = self.edge
        if index == _OUT:  # a leaf: its gradient goes through an alias, as the value may lie elsewhere now
            alias = _in_mode(True, table.alias, target)
            made._node, made._track = alias._node, alias._track
        else:
            made._node, made._index, made._track = target, index, True
        return made


def _in_mode(taped: bool, function: Callable[[Any], Any], value: Any) -> Any:
    """``function(value)`` with grad mode ``taped``; hooks that it enters or leaves stay as they were."""
    previous, MODE.enabled = MODE.enabled, taped
    hooks = _STACK.hooks
    try:
        return function(value)
    finally:
        MODE.enabled = previous
        if _STACK.hooks is not hooks:
            _restack(hooks)


def _pack(node: Any) -> None:
    hooks = innermost()
    if hooks is None or (node.saved is None and node.out is None and not node.residuals):
        return
    packed = {}
    for i, value in enumerate(node.saved or ()):
        if isinstance(value, Value):
            packed[i] = Packed(hooks, value)
            node.args[i] = Aval(tuple(value.raw.shape), value.raw.dtype)
    if node.out is not None:
        packed[_OUT] = Packed(hooks, Value.make(node.out, node.backend))
        packed[_OUT].edge = None
    node.residuals = tuple(
        Packed(hooks, Value.make(r, node.backend)) if isinstance(r, node.backend.array_type) else r
        for r in node.residuals
    )
    node.saved = node.out = node.out_counter = None
    node.packed = packed
    node.watched = True  # off the fast path of the sweep


def unpacked(node: Any) -> tuple[list[Any], Any]:
    """Arguments and output of a node with packed values, as tensors."""
    arguments = list(node.args)
    out = None
    for position, packed in node.packed.items():
        if position == _OUT:
            out = packed.unpack()
            out._node, out._track = node, True
        else:
            arguments[position] = packed.unpack()
    return arguments, out


def unpacked_residuals(node: Any) -> tuple[Any, ...]:
    """The hidden outputs of a node, as arrays."""
    return tuple(r.unpack().raw if isinstance(r, Packed) else r for r in node.residuals)
