"""``Variable``: torch's old name for a tensor that records its history. Every tensor does now."""

from __future__ import annotations

from typing import Any

from tenon.core.backward_end import queue_callback
from tenon.core.create import tensor as _tensor
from tenon.core.tensor import Tensor
from tenon.core.value import Value


class _Engine:
    """torch's name for who runs backward passes."""

    queue_callback = staticmethod(queue_callback)


class _VariableMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableMeta):
    """``Variable(data, requires_grad)`` is ``data`` as a tensor; ``isinstance(t, Variable)`` is true of every
    tensor."""

    _execution_engine = _Engine()

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: Any = None) -> Any:
        """``data`` as a tensor."""
        found: Any = data.detach() if isinstance(data, Value) else _tensor(data)  # type: ignore[attr-defined]
        return found.requires_grad_(requires_grad)
