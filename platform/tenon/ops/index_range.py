"""Errors for invalid indices: their dtype or shape, their range, or the value written there.

Where NumPy checks an index itself, kernels diagnose only after it has raised (``out_of_range``,
``shape_mismatch``), so that a valid index costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.engine.types import Array, ArrayNamespace, Operand
from tenon.errors import IndexRangeError, ShapeError
from tenon.tensors.index_parsing import INDEX, result_shape


def out_of_range(
    x: Array, layout: tuple[object, ...], indices: Sequence[Array], error: Exception
) -> IndexRangeError:
    """Create the error for index arrays that NumPy rejected; it names the first index out of range."""
    indexed = [axis for axis, k in enumerate(layout) if k is INDEX]
    for axis, index in zip(indexed, indices, strict=True):
        size = x.shape[axis]
        if not size and index.size:
            return IndexRangeError(
                f"index is out of bounds for dimension with size 0 (dimension {axis} of {list(x.shape)})"
            )
        wrong = index[(index < -size) | (index >= size)]
        if wrong.size:
            return IndexRangeError(
                f"index {int(wrong.reshape(-1)[0])} is out of bounds for dimension {axis} with size {size}"
            )
    try:
        np.broadcast_shapes(*(i.shape for i in indices))
    except ValueError:
        shapes = ", ".join(str(list(i.shape)) for i in indices)
        return IndexRangeError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        )
    return IndexRangeError(str(error))


def shape_mismatch(
    x: Array, y: Array, layout: tuple[object, ...], indices: Sequence[Array], error: Exception
) -> Exception:
    """Create the error for a value ``y`` whose shape does not fit the index arrays."""
    shape = result_shape(x.shape, layout, indices)
    if np.shape(y) == shape:
        return ShapeError(str(error))
    return ShapeError(
        f"shape mismatch: value tensor of shape {list(np.shape(y))} cannot be broadcast to indexing result"
        f" of shape {list(shape)}"
    )


def check_along(name: str, x: Operand, index: Operand, axis: int) -> None:
    """Raise unless the dtype, rank and sizes of ``index`` are valid for ``x`` along ``axis``."""
    if index.dtype.kind not in "iu":
        raise IndexRangeError(
            f"{name}(): Expected dtype int32/int64 for index, got {index.dtype}. Use .long()."
        )
    if 0 in index.shape:
        return  # an empty index may have any shape
    if max(len(index.shape), 1) != max(len(x.shape), 1):
        raise ShapeError(
            "Index tensor must have the same number of dimensions as input tensor "
            f"({name}: index {list(index.shape)}, input {list(x.shape)})"
        )
    for a, (i, s) in enumerate(zip(index.shape, x.shape, strict=False)):
        if a != axis and i > s:
            raise ShapeError(
                f"Size does not match at dimension {a} expected index {list(index.shape)} to be no larger"
                f" than self {list(x.shape)} apart from dimension {axis}"
            )


def check_range(xp: ArrayNamespace, name: str, index: Array, size: int, axis: int) -> None:
    """Raise IndexRangeError unless each element of ``index`` is within ``size`` along ``axis``."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= size:
            raise IndexRangeError(
                f"index {low if low < 0 else high} is out of bounds for dimension {axis} with size {size}"
                f" ({name})"
            )
