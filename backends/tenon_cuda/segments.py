"""Deterministic scatter reductions and scans.

The hardware's atomic operations add in the order in which threads arrive, and support neither products nor
bfloat16. Here a stable sort makes equal indices adjacent; their values are then combined in a tree whose
shape depends only on their counts, in ``log2`` of the longest run passes over the values.
"""

from __future__ import annotations

from collections.abc import Callable

from tenon.extend import Array, ArrayNamespace

#: Combines the elements of two arrays.
Combine = Callable[[Array, Array], Array]


def combine_rows(xp: ArrayNamespace, target: Array, rows: Array, values: Array, function: Combine) -> None:
    """``target[row] = function(target[row], value)`` for every row and value; rows may repeat, in any order.

    ``rows`` are non-negative and flat, ``values[i]`` has the shape of ``target[rows[i]]``.
    """
    if rows.size == 0:
        return
    order = xp.argsort(rows)
    sorted_rows, parts = rows[order], widened(xp, values[order])
    one = xp.ones(1, bool)
    ends = xp.nonzero(xp.concatenate((sorted_rows[1:] != sorted_rows[:-1], one)))[0]
    begins = xp.concatenate((xp.zeros(1, ends.dtype), ends[:-1] + 1))
    longest = int((ends - begins).max()) + 1
    step = 1
    while step < longest:
        same = (sorted_rows[step:] == sorted_rows[:-step]).reshape(-1, *(1,) * (parts.ndim - 1))
        combined = parts.copy()
        combined[step:] = xp.where(same, function(parts[:-step], parts[step:]), parts[step:])
        parts = combined
        step *= 2
    distinct_rows = sorted_rows[ends]
    total = function(widened(xp, target[distinct_rows]), parts[ends])
    target[distinct_rows] = total.astype(target.dtype, copy=False)


def widened(xp: ArrayNamespace, values: Array) -> Array:
    """``values``, with 16-bit floats converted to float32."""
    narrow = values.dtype.itemsize == 2 and values.dtype.kind in "fV"
    return values.astype(xp.float32) if narrow else values


def running(xp: ArrayNamespace, values: Array, axis: int, function: Combine) -> Array:
    """The inclusive scan of ``values`` by ``function`` along ``axis``."""
    result, step = values.copy(), 1
    before = (slice(None),) * (axis % values.ndim)
    while step < values.shape[axis]:
        later, earlier = (*before, slice(step, None)), (*before, slice(None, -step))
        combined = result.copy()
        combined[later] = function(result[earlier], result[later])
        result, step = combined, 2 * step
    return result


def flat_indices(xp: ArrayNamespace, shape: tuple[int, ...], arrays: tuple[Array, ...]) -> Array:
    """Flat indices into the leading axes of ``shape``, from one index array for each axis."""
    flat: Array = 0
    for size, array in zip(shape, arrays, strict=False):
        flat = flat * size + xp.where(array < 0, array + size, array)
    return flat.reshape(-1)
