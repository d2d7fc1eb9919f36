"""PyTorch's path ``torch.storage``; the memory behind tensors is in ``tenon.core.storage``."""

from __future__ import annotations

from tenon.core.legacy_storages import _LegacyStorage  # noqa: F401 - torch has it here
from tenon.core.storage import UntypedStorage
from tenon.core.typed_storage import STORAGE_NAMES, TypedStorage
from tenon.dtypes import dtype


def _dtype_to_storage_type_map() -> dict[dtype, str]:
    """torch's name of the storage of each dtype, as ``FloatStorage``."""
    return dict(STORAGE_NAMES)


def _storage_type_to_dtype_map() -> dict[str, dtype]:
    """The dtype that each named storage holds."""
    return {name: kind for kind, name in STORAGE_NAMES.items()}


__all__ = ["TypedStorage", "UntypedStorage"]
