"""Predicates and type names of objects: ``is_tensor``, ``typename``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from tenon.compat.typed_storage import TypedStorage
from tenon.engine.value import Value
from tenon.tensors.storage.untyped import UntypedStorage

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["_debug_has_internal_overlap", "is_storage", "is_tensor", "typename"]


def is_tensor(obj: object) -> TypeGuard[Tensor]:
    """Whether ``obj`` is a tensor."""
    return isinstance(obj, Value)


def is_storage(obj: object) -> TypeGuard[TypedStorage | UntypedStorage]:
    """Whether ``obj`` is a storage."""
    return isinstance(obj, (TypedStorage, UntypedStorage))


def typename(obj: object) -> str:
    """Return the name of an object's type: "torch.FloatTensor", or module and qualified name."""
    if is_tensor(obj):
        return str(obj.type())
    named: Any = obj if hasattr(obj, "__qualname__") else type(obj)  # with a ``__qualname__``
    module = getattr(named, "__module__", "") or ""
    name = str(named.__qualname__)
    return name if module in ("", "builtins") else f"{module}.{name}"


def _debug_has_internal_overlap(x: Tensor) -> int:
    """Return whether elements of ``x`` overlap in memory: 0 no, 1 yes, 2 undetermined, as in PyTorch."""
    axes = sorted((step, size) for step, size in zip(x.stride(), x.shape, strict=True) if size != 1)
    dense = 1
    for step, size in axes:
        if step != dense:
            return 1 if any(step == 0 for step, _ in axes) and x.numel() else 2 if x.numel() else 0
        dense *= size
    return 0
