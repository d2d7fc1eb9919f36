"""Saved values of nodes under PyTorch's names: ``grad_fn._saved_self``, ``grad_fn._raw_saved_result``."""

from __future__ import annotations

import re
from abc import ABCMeta
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenon.compat.saved_readers import number
from tenon.engine.aval import aval_of
from tenon.engine.tape import OUT
from tenon.errors import GradError
from tenon.tensors.autograd.saved_tensor_hooks import Packed, SavedTensorsHooks, check_hooks
from tenon.tensors.size import Size

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.engine.tape import Node, StandIn
    from tenon.tensors.autograd.saved_tensor_hooks import UnpackHook
    from tenon.tensors.tensor import Tensor

_FIRST = ("self", "input")
_SECOND = ("other", "exponent", "mat2", "weight")
#: Names under which torch saves an input's shape, or one size of it.
_SIZE = re.compile(r"(?P<of>\w+?)_sym_(sizes(_opt)?|argsize_(?P<minus>minus_)?(?P<place>\d+))")
_ATTRS = {"dim": ("axis", "axes"), "keepdim": ("keepdims",)}


class SavedTensor(metaclass=ABCMeta):  # values saved by a custom Function are registered as instances
    """One value that a node saves for backward; ``register_hooks`` sets pack and unpack hooks for it."""

    __slots__ = ("_node", "_position")

    _node: Node
    _position: int

    def __init__(self) -> None:
        raise GradError("Trying to create a SavedTensor object from Python is forbidden: nodes make them.")

    @classmethod
    def of(cls, node: Node, position: int) -> SavedTensor:
        """The value of ``node`` at ``position`` among its inputs, or ``OUT``."""
        result = object.__new__(cls)
        result._node, result._position = node, position
        return result

    def _packed(self) -> Packed | None:
        packed = None if self._node.packed is None else self._node.packed.get(self._position)
        return packed if isinstance(packed, Packed) else None

    @property
    def data(self) -> object:
        """The stored object: a pack hook's result, an input with history, or a detached output or leaf."""
        packed = self._packed()
        if packed is not None:
            return packed.packed
        tensor = self.unpack()
        return tensor if self._position != OUT and tensor._node is not None else tensor.detach()

    @property
    def unpack_hook(self) -> UnpackHook | None:
        """The unpack hook, or None."""
        packed = self._packed()
        return None if packed is None else packed.unpack_hook

    def unpack(self) -> Tensor:
        """Return the saved tensor; ModifiedValueError if it was modified in place."""
        arguments, out = self._node.values()
        return out if self._position == OUT else arguments[self._position]

    def register_hooks(
        self,
        pack_hook: Callable[[Tensor], Any],  # the hooks agree on what is stored
        unpack_hook: Callable[[Any], Tensor] | None = None,  # likewise
    ) -> None:
        """Store ``pack_hook(value)`` and restore it by ``unpack_hook``; allowed once per value."""
        node, position = self._node, self._position
        if node.args is None:
            raise GradError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values"
                " of the graph are freed when you call .backward() or autograd.grad()."
            )
        check_hooks(pack_hook, unpack_hook, self._packed() is not None)
        assert unpack_hook is not None  # as ``check_hooks`` raised otherwise
        packed = Packed(SavedTensorsHooks(pack_hook, unpack_hook), self.unpack())
        if node.packed is None:
            node.packed = {}
        node.packed[position] = packed
        node.watched = True  # off the fast path of the sweep
        if position == OUT:
            packed.edge = None
            node.out = node.out_counter = None
        else:
            node.args[position] = aval_of(node.args[position])
            node.saved = tuple(None if i == position else s for i, s in enumerate(node.saved))


def find(node: Node, name: str) -> Any:  # tensors, shapes, numbers and attrs
    """Return the value that ``node`` saved as ``name``; AttributeError if there is none."""
    raw = name.startswith("_raw_saved_")
    attribute = name.removeprefix("_raw_saved_" if raw else "_saved_")
    value = None if raw else number(node, attribute)
    if value is not None:
        return value[0]
    for attr in (attribute, *_ATTRS.get(attribute, ())):
        if attr in node.attrs:
            return node.attrs[attr]
    size = _SIZE.fullmatch(attribute)
    if size is not None and (of := _position(node.op, size["of"])) is not None:
        node.check()
        shape = Size(() if node.args[of] is None else node.args[of].shape)
        return shape if size["place"] is None else shape[int(size["place"]) * (-1 if size["minus"] else 1)]
    position = _position(node.op, attribute)
    if position is None and attribute != "self_sym_sizes":
        raise AttributeError(f"{type(node).__name__!r} object has no attribute {name!r}")
    if node.args is None:
        if raw and position is not None:
            return SavedTensor.of(node, position)  # whose methods raise an error, as the value was freed
        node.check()
    if position is None:
        return Size(node.args[0].shape)
    if position != OUT and not hasattr(node.args[position], "shape"):
        return node.args[position]  # a number
    saved = SavedTensor.of(node, position)
    is_kept = saved._packed() is not None or (
        node.out is not None
        if position == OUT
        else node.saved is not None and node.saved[position] is not None
    )
    if not is_kept:
        raise AttributeError(
            f"{type(node).__name__!r} object has no attribute {name!r}: its gradient does not read that value"
        )
    return saved if raw else saved.unpack()


def _position(op: Op | StandIn, attribute: str) -> int | None:
    """Return the index of the input that torch calls ``attribute``, ``OUT`` for the output, else None."""
    names = [n.lstrip("*") for n in getattr(op, "inputs", ())]
    if attribute in names:
        return names.index(attribute)
    if attribute in ("result", "output") and "out" in op.saves:
        return OUT
    if attribute in _FIRST and names:
        return 0
    return 1 if attribute in _SECOND and len(names) > 1 else None
