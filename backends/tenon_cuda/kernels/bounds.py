"""Bounds checks of index arrays."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.errors import IndexRangeError
from tenon.extend import Array, ArrayNamespace


def check_indices(xp: ArrayNamespace, x: Array, indices: tuple[Array, ...], layout: Sequence[object]) -> None:
    """IndexRangeError for the first index array (no slice of ``layout``) that reaches outside its axis.

    Costs one transfer of two numbers per index array; without it CuPy would silently read another element.
    """
    axes = [axis for axis, part in enumerate(layout) if not isinstance(part, slice)]
    for axis, array in zip(axes, indices, strict=True):
        if array.size == 0 or array.dtype.kind == "b":
            continue
        size = x.shape[axis]
        low, high = xp.stack((array.min(), array.max())).tolist()
        if low < -size or high >= size:
            raise IndexRangeError(
                f"index {high if high >= size else low} is out of bounds for dimension {axis} with size "
                f"{size} (indexing {list(x.shape)} with indices of shape {list(array.shape)})"
            )
