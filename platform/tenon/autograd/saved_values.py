"""Values that a custom Function saves for its backward: inputs unchanged, outputs without their history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.compat.saved_attributes import SavedTensor
from tenon.engine.grad_mode import UNCOUNTED
from tenon.engine.types import Array
from tenon.engine.value import Value, refuse_saving
from tenon.errors import FreedGraphError, GradError, ModifiedValueError
from tenon.tensors.autograd.saved_tensor_hooks import Packed, SavedTensorsHooks, check_hooks, innermost

if TYPE_CHECKING:
    from tenon.engine.tape import Node
    from tenon.tensors.autograd.saved_tensor_hooks import PackHook, UnpackHook
    from tenon.tensors.tensor import Tensor


class Saved:
    """A saved tensor, its version at that time, and its index among the outputs, None for an input."""

    __slots__ = ("backend", "counter", "index", "owner", "packed", "raw", "tensor", "then")

    def __init__(self, value: Tensor, index: int | None, owner: str) -> None:
        self.counter = value._counter()
        if self.counter is UNCOUNTED:
            refuse_saving()
        self.then: int = self.counter[0]
        self.index = index
        self.backend = value._backend
        self.owner = owner
        # A saved output with its history would refer to the node that saves it: a reference cycle.
        hooks = innermost()
        self.packed = None if hooks is None else Packed(hooks, value)
        if self.packed is not None and index is not None:
            self.packed.edge = None
        self.tensor = value if index is None and hooks is None else None
        self.raw: Array = value.raw if index is not None and hooks is None else None

    def register_hooks(self, pack_hook: PackHook, unpack_hook: UnpackHook | None = None) -> None:
        """Save ``pack_hook(tensor)``, and unpack it with ``unpack_hook``; may be called only once."""
        check_hooks(pack_hook, unpack_hook, self.packed is not None)
        assert unpack_hook is not None  # as ``check_hooks`` raised otherwise
        value = Value.make(self.raw, self.backend) if self.tensor is None else self.tensor
        self.packed = Packed(SavedTensorsHooks(pack_hook, unpack_hook), value)
        self.tensor = self.raw = None

    def unpack(self, node: Node | None) -> Tensor:
        """Return the tensor; ModifiedValueError if its memory was changed since it was saved.

        An output is connected to ``node`` again.
        """
        if node is None and self.index is not None:
            raise FreedGraphError(
                f"The graph of {self.owner} was freed, and with it the output that it saved: read"
                " saved_tensors while a tensor that the function returned is referenced."
            )
        if self.packed is not None:
            tensor = self.packed.unpack()
            if self.index is not None:
                tensor = Value.make(
                    tensor.raw, tensor._backend
                )  # the hook's tensor must not refer to the node
                tensor._node, tensor._index, tensor._track = node, self.index, True
            return tensor
        if self.counter[0] != self.then:
            shape = list((self.raw if self.tensor is None else self.tensor.raw).shape)
            raise ModifiedValueError(
                "one of the variables needed for gradient computation has been modified by an inplace"
                f" operation: a tensor {shape} that {self.owner} saved is at version {self.counter[0]};"
                f" expected version {self.then} instead. Clone it before modifying it."
            )
        if self.tensor is not None:
            return self.tensor
        output = Value.make(self.raw, self.backend)
        output._version_counter = self.counter
        output._node, output._index, output._track = node, self.index, True
        return output


class StandaloneSaved(Saved):
    """A saved tensor without a node that owns it, for ``_C._autograd._make_saved_tensor``."""

    __slots__ = ("node",)

    def __init__(self, value: Tensor, is_output: bool) -> None:
        super().__init__(value, value._index if is_output else None, "a SavedTensor")
        self.node = value._node if is_output else None

    def unpack(self, node: Node | None = None) -> Tensor:
        """Return the tensor, with its history."""
        return super().unpack(self.node)


class SavedNone:
    """The saved value for a None that was passed to ``save_for_backward``."""

    def register_hooks(self, pack_hook: PackHook, unpack_hook: UnpackHook | None = None) -> None:
        """Raise GradError: there is no tensor to pack."""
        raise GradError("Calling register_hooks on a saved tensor with value None is forbidden")


SavedTensor.register(Saved)
SavedTensor.register(SavedNone)
