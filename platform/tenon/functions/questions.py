"""Questions about tensors and other objects: ``is_tensor``, ``typename``."""

from __future__ import annotations

from typing import Any

from tenon.core.storage import UntypedStorage
from tenon.core.typed_storage import TypedStorage
from tenon.core.value import Value

__all__ = ["is_storage", "is_tensor", "typename"]


def is_tensor(obj: Any) -> bool:
    """Whether ``obj`` is a tensor."""
    return isinstance(obj, Value)


def is_storage(obj: Any) -> bool:
    """Whether ``obj`` is the memory behind a tensor."""
    return isinstance(obj, (TypedStorage, UntypedStorage))


def typename(obj: Any) -> str:
    """``"torch.FloatTensor"`` of a tensor; module and qualified name of anything else."""
    if isinstance(obj, Value):
        return str(obj.type())  # type: ignore[attr-defined]
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", "") or ""
    name = str(named.__qualname__)
    return name if module in ("", "builtins") else f"{module}.{name}"
