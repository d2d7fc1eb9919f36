"""Saved-tensor hooks: ``pack`` is called when an op has run, ``unpack`` when its gradient is computed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE
from tenon.engine.op import table
from tenon.engine.tape import OUT
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import GradError

if TYPE_CHECKING:
    from tenon.engine.tape import Node
    from tenon.tensors.tensor import Tensor

    A = TypeVar("A")
    R = TypeVar("R")

#: ``pack(tensor)`` returns what is saved in place of the tensor: any object, which only ``unpack`` reads.
PackHook: TypeAlias = "Callable[[Tensor], Any]"
#: ``unpack(packed)`` returns the tensor; a TypeError is raised if it returns anything else.
UnpackHook: TypeAlias = Callable[[Any], object]


class _Stack(threading.local):
    hooks: tuple[SavedTensorsHooks, ...] = ()
    #: Why hooks are refused; None where they are not.
    refused: str | None = None


_STACK = _Stack()


def innermost() -> SavedTensorsHooks | None:
    """Return the innermost hooks active in this thread, or None."""
    return _STACK.hooks[-1] if _STACK.hooks else None


def hooks_are_enabled() -> bool:
    """Whether saved-tensor hooks are enabled in this thread (no ``disable_saved_tensors_hooks``)."""
    return _STACK.refused is None


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Raise GradError with ``error_message`` where saved-tensor hooks are used inside the ``with`` block."""
    before, _STACK.refused = _STACK.refused, error_message
    try:
        if _STACK.hooks:
            raise GradError(error_message)
        yield
    finally:
        _STACK.refused = before


class SavedTensorsHooks:
    """A context manager in which each value that an op saves is replaced by the result of ``pack_hook``.

    The gradient rule receives the result of ``unpack_hook``.
    """

    def __init__(self, pack_hook: PackHook, unpack_hook: UnpackHook) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        if _STACK.refused is not None:
            raise GradError(_STACK.refused)
        _restack((*_STACK.hooks, self))

    def __exit__(self, *exc: object) -> None:
        _restack(_STACK.hooks[:-1])


def _restack(hooks: tuple[SavedTensorsHooks, ...]) -> None:
    """Replace this thread's hooks; register the callback for new nodes of the tape while there are any."""
    if hooks and not _STACK.hooks:
        WATCHERS.add(_pack)
    elif _STACK.hooks and not hooks:
        WATCHERS.remove(_pack)
    _STACK.hooks = hooks


def check_hooks(pack_hook: object, unpack_hook: object, taken: bool) -> None:
    """Raise TypeError unless both are callable, GradError if the value has hooks already (``taken``)."""
    if not callable(pack_hook) or not callable(unpack_hook):
        raise TypeError("register_hooks: incompatible function arguments; it takes two functions.")
    if taken:
        raise GradError("Calling register_hooks on a saved tensor whose hooks have already been set.")


class Packed:
    """The result of ``pack_hook`` for one saved value, and the graph edge of the value."""

    __slots__ = ("edge", "packed", "unpack_hook")

    def __init__(self, hooks: SavedTensorsHooks, tensor: Any) -> None:  # a Tensor; the tape calls them Values
        self.unpack_hook = hooks.unpack_hook
        self.edge = (
            None
            if not tensor._track
            else (tensor, OUT)
            if tensor._node is None
            else (tensor._node, tensor._index)
        )
        argument = tensor  # a leaf itself, so that hooks can recognise it by identity
        if tensor._node is not None:
            argument = Value.make(tensor.raw, tensor._backend)
            argument._version_counter = tensor._counter()
        before = argument._counter()[0]
        self.packed = _in_mode(False, hooks.pack_hook, argument)
        if argument._version_counter[0] != before:
            raise GradError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack"
                " hook can not be modified by in-place operations as this can lead to unexpected"
                " side-effects."
            )

    def unpack(self) -> Any:  # a Tensor, as the hook returned it
        """Call the unpack hook; return its tensor with the saved value's history."""
        unpacked = _in_mode(False, self.unpack_hook, self.packed)
        if not isinstance(unpacked, Value):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got"
                f" {type(unpacked).__name__}"
            )
        if not unpacked._track if self.edge is None else unpacked is self.edge[0]:
            return unpacked
        result = Value.make(unpacked.raw, unpacked._backend)
        if self.edge is None:
            return result
        target, index = self.edge
        if index == OUT:  # a leaf: its gradient goes through an alias, as the value may be on another device
            alias = _in_mode(True, table.alias, target)
            result._node, result._track = alias._node, alias._track
        else:
            result._node, result._index, result._track = target, index, True
        return result


def _in_mode(taped: bool, function: Callable[[A], R], value: A) -> R:
    """``function(value)`` with grad mode ``taped``; changes that it makes to the hooks are undone."""
    previous, MODE.enabled = MODE.enabled, taped
    hooks = _STACK.hooks
    try:
        return function(value)
    finally:
        MODE.enabled = previous
        if _STACK.hooks is not hooks:
            _restack(hooks)


def _pack(node: Node) -> None:
    hooks = innermost()
    if hooks is None or (node.saved is None and node.out is None and not node.residuals):
        return
    packed: dict[int, Any] = {}  # of Packed; the tape declares a protocol, and dicts are invariant
    for i, value in enumerate(node.saved or ()):
        if isinstance(value, Value):
            packed[i] = Packed(hooks, value)
            node.args[i] = Aval(tuple(value.raw.shape), value.raw.dtype)
    if node.out is not None:
        packed[OUT] = Packed(hooks, Value.make(node.out, node.backend))
        packed[OUT].edge = None
    node.residuals = tuple(
        Packed(hooks, Value.make(r, node.backend)) if isinstance(r, node.backend.array_type) else r
        for r in node.residuals
    )
    node.saved = node.out = node.out_counter = None
    node.packed = packed
    node.watched = True  # off the fast path of the sweep
