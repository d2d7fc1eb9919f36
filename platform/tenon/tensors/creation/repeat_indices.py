"""Compute the indices of ``repeat_interleave``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.value import Value
from tenon.errors import ShapeError, UnsupportedDTypeError
from tenon.tensors.creation.create import wrap

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def repeat_indices(x: Tensor, repeats: Tensor | int, axis: int) -> Tensor:
    """Return the indices that repeat element ``i`` of ``axis`` ``repeats[i]`` times (a number: all)."""
    counts = repeats._backend.to_host(repeats.raw) if isinstance(repeats, Value) else np.asarray(repeats)
    size = x.raw.shape[axis]
    if counts.ndim > 1:
        raise ShapeError(f"repeats must be 0-dim or 1-dim tensor, got shape {list(counts.shape)}")
    if counts.dtype.kind not in "iu":
        kind = scalar_name(FROM_NUMPY[counts.dtype])
        raise UnsupportedDTypeError(f"\"repeat_interleave_cpu\" not implemented for '{kind}' repeats")
    if counts.ndim and counts.shape[0] not in (1, size):
        raise ShapeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {counts.shape[0]}"
            f" and {size}"
        )
    if counts.min(initial=0) < 0:
        raise ShapeError(f"repeats can not be negative, got {counts.min()}")
    return wrap(np.repeat(np.arange(size), counts), x.device)
