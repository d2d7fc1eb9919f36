"""``Variable``: PyTorch's old name for a tensor that records its history. Every tensor does now."""

from __future__ import annotations

from collections.abc import Callable

from tenon.engine.running_pass import queue_callback
from tenon.tensors.creation.create import tensor as _tensor
from tenon.tensors.tensor import Tensor


class _Engine:
    """PyTorch's name for the engine that runs backward passes."""

    def queue_callback(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` at the end of the current backward pass; for use in hooks."""
        queue_callback(callback)


class _VariableMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableMeta):
    """PyTorch's former class of differentiable tensors: ``Variable(data, requires_grad)`` returns a tensor.

    Every tensor is an instance of it.
    """

    _execution_engine = _Engine()

    def __new__(  # type: ignore[misc]  # returns a tensor, as in PyTorch
        cls, data: object, requires_grad: bool = False, volatile: object = None
    ) -> Tensor:
        """Return ``data``, a tensor or any data that ``tensor()`` accepts, as a new tensor."""
        result: Tensor = data.detach() if isinstance(data, Tensor) else _tensor(data)
        return result.requires_grad_(requires_grad)
