"""Questions about tensors and other objects: ``is_tensor``, ``is_nonzero``, ``typename``."""

from __future__ import annotations

from typing import Any

from tenon.core.value import Value
from tenon.errors import ArgumentError

__all__ = ["is_nonzero", "is_storage", "is_tensor", "typename"]


def is_tensor(obj: Any) -> bool:
    """Whether ``obj`` is a tensor."""
    return isinstance(obj, Value)


def is_storage(obj: Any) -> bool:
    """Always False: memory belongs to the backend's arrays, there is no storage object."""
    return False


def is_nonzero(input: Any) -> bool:
    """Whether the only element of ``input`` is not zero."""
    if input.raw.size != 1:
        raise ArgumentError(
            "Boolean value of Tensor with no values is ambiguous"
            if input.raw.size == 0
            else "Boolean value of Tensor with more than one value is ambiguous"
        )
    return bool(input.item() != 0)


def typename(obj: Any) -> str:
    """``"torch.FloatTensor"`` of a tensor; module and qualified name of anything else."""
    if isinstance(obj, Value):
        return str(obj.type())  # type: ignore[attr-defined]
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", "") or ""
    name = str(named.__qualname__)
    return name if module in ("", "builtins") else f"{module}.{name}"
