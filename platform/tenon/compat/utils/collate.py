"""PyTorch's module ``utils.data._utils.collate``: ``collate`` by a table of types, beside ``tenon.data``'s.

``collate(batch, collate_fn_map={Mine: join, **default_collate_fn_map})`` also batches samples of the class
``Mine``, in containers too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tenon.data import default_collate, default_convert
from tenon.data.collate import like
from tenon.engine.types import Nested
from tenon.errors import CollateError
from tenon.tensors.tensor import Tensor

#: How to join samples, by their type or a tuple of types.
FnMap = Mapping[type | tuple[type, ...], Callable[..., Nested]]

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]


def collate(batch: Sequence[Nested], *, collate_fn_map: FnMap | None = None) -> Nested:
    """Return ``batch`` as one value, joined by the function that ``collate_fn_map`` has for the type of the
    samples, else for the first of its types that they are instances of.

    The elements of containers are collated. CollateError for samples of other types.
    """
    table = collate_fn_map or {}
    first = batch[0]
    join = table.get(type(first)) or next((table[t] for t in table if isinstance(first, t)), None)
    if join is not None:
        return join(batch, collate_fn_map=table)
    if isinstance(first, Mapping):
        parts = {key: collate([sample[key] for sample in batch], collate_fn_map=table) for key in first}
        return like(first, parts)
    if isinstance(first, Sequence) and not isinstance(first, str | bytes):
        named = isinstance(first, tuple) and hasattr(first, "_fields")
        if not named and any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        joined = [collate(part, collate_fn_map=table) for part in zip(*batch, strict=True)]
        return type(first)(*joined) if named else joined if isinstance(first, tuple) else like(first, joined)
    raise CollateError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found"
        f" {type(first)}. Put it into collate_fn_map."
    )


def collate_tensor_fn(batch: Sequence[Nested], *, collate_fn_map: FnMap | None = None) -> Tensor:
    """Stack tensors along a new first axis."""
    return default_collate(batch)


def _by_default_collate(batch: Sequence[Nested], *, collate_fn_map: FnMap | None = None) -> Nested:
    return default_collate(batch)


collate_numpy_array_fn = collate_numpy_scalar_fn = collate_float_fn = collate_int_fn = _by_default_collate
collate_str_fn = _by_default_collate

#: The functions of ``default_collate`` by type.
default_collate_fn_map: dict[type | tuple[type, ...], Callable[..., Nested]] = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
