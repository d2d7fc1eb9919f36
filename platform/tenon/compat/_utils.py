"""PyTorch's module ``torch._utils``: exceptions passed between processes, and flattened tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon.data.worker_errors import ExceptionWrapper, KeyErrorMessage

if TYPE_CHECKING:
    from tenon.compat.typed_storage import TypedStorage
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = ["ExceptionWrapper", "KeyErrorMessage"]


def _element_size(dtype: dtype) -> int:
    """Return the number of bytes of one element of ``dtype``."""
    return int(dtype.itemsize)


def _is_privateuse1_backend_available() -> bool:
    """Return False: other backends are plugins, none of which uses PyTorch's reserved device."""
    return False


def _rebuild_tensor(
    storage: TypedStorage, storage_offset: int, size: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """Return a tensor that views a storage from ``storage_offset`` on."""
    from tenon.tensors.creation.factories import empty

    result: Tensor = empty(0, dtype=storage.dtype).set_(storage.untyped(), storage_offset, size, stride)
    return result


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate all elements of tensors of one dtype to a vector."""
    from tenon.functions.joining import cat

    flat: Tensor = cat([t.reshape(-1) for t in tensors])
    return flat


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Split ``flat`` into views with the shapes of ``tensors``."""
    parts, start = [], 0
    for like in tensors:
        parts.append(flat.narrow(0, start, like.numel()).view_as(like))
        start += like.numel()
    return tuple(parts)
