"""PyTorch's module ``torch.storage``; the memory behind tensors is in ``tenon.tensors.storage.untyped``."""

from __future__ import annotations

from tenon.compat.legacy_storages import _LegacyStorage  # noqa: F401 - PyTorch defines it here
from tenon.compat.typed_storage import STORAGE_NAMES, TypedStorage
from tenon.dtypes import dtype
from tenon.tensors.storage.untyped import UntypedStorage


def _dtype_to_storage_type_map() -> dict[dtype, str]:
    """Return PyTorch's name of the storage class of each dtype, such as ``FloatStorage``."""
    return dict(STORAGE_NAMES)


def _storage_type_to_dtype_map() -> dict[str, dtype]:
    """Return the dtype of each named storage class."""
    return {name: kind for kind, name in STORAGE_NAMES.items()}


__all__ = ["TypedStorage", "UntypedStorage"]
