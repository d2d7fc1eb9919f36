"""``gather`` and ``scatter``: slices of an array at computed indices."""

from __future__ import annotations

from collections.abc import Sequence

from tenon_target_stablehlo.builder import INT64, Builder, Value
from tenon_target_stablehlo.sizes import Size, are_numbers, is_number
from tenon_target_stablehlo.texts import integers_text, list_text, type_text

#: The operation that combines an element and its update.
COMBINED = {"add": "add", "multiply": "multiply", "amax": "maximum", "amin": "minimum"}


def counted(b: Builder, index: Value, size: Size) -> Value:
    """Return an index in which negative ones count from the end of an axis of ``size``."""
    index = b.convert(index, INT64) if index.dtype.kind in "u" else index
    end = b.broadcast(b.value(size, index.dtype), index.shape)
    below = b.compare("LT", index, b.full(0, index.dtype, index.shape))
    return b.select(below, b.binary("add", index, end), index)


def side_by_side(b: Builder, indices: Sequence[Value], shape: Sequence[Size]) -> Value:
    """Return indices, broadcast to ``shape``, on a new last axis."""
    parts = []
    for index in indices:
        wide = b.broadcast(b.convert(index, INT64), shape)
        parts.append(b.reshape(wide, (*shape, 1)))
    return b.concatenate(parts, len(tuple(shape)))


def gather(b: Builder, x: Value, places: Value, axes: Sequence[int], first: int) -> Value:
    """Return the elements of ``x`` where ``places[..., i]`` says the index on the axis ``axes[i]``.

    The axes of ``places`` but the last stand in the result from ``first`` on, in place of ``axes``.
    """
    rest = [a for a in range(x.rank) if a not in axes]
    count = places.rank - 1
    shape = [x.shape[a] for a in rest]
    shape[first:first] = places.shape[:-1]
    offsets = [p for p in range(len(shape)) if not first <= p < first + count]
    numbers = (
        f"dimension_numbers = #stablehlo.gather<offset_dims = {list_text(offsets)}, collapsed_slice_dims = "
        f"{list_text(sorted(axes))}, start_index_map = {list_text(axes)}, index_vector_dim = {count}>"
    )
    results = [(x.dtype, shape)]
    if are_numbers(x.shape):
        sizes = [1 if a in axes else s for a, s in enumerate(x.shape)]
        properties = f"{numbers}, indices_are_sorted = false, slice_sizes = {integers_text(sizes)}"
        return b.generic("gather", [x, places], properties, "", results)[0]
    properties = f"{numbers}, indices_are_sorted = false"
    return b.generic("dynamic_gather", [x, places, _slice_sizes(b, x, axes)], properties, "", results)[0]


def _slice_sizes(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Return 1 for each of ``axes``, 0 where ``x`` has no elements along it, and the size of other axes."""
    one = b.sizes([1])
    parts = []
    for axis, size in enumerate(x.shape):
        given = one if axis in axes and is_number(size) else b.size(size)
        parts.append(b.binary("minimum", given, one) if axis in axes and not is_number(size) else given)
    return parts[0] if len(parts) == 1 else b.concatenate(parts, 0)


def take(b: Builder, x: Value, index: Value, axis: int) -> Value:
    """Return the parts of ``x`` at an index of any shape along one axis."""
    return gather(b, x, b.reshape(index, (*index.shape, 1)), [axis], axis)


def scatter(
    b: Builder, x: Value, places: Value, updates: Value, axes: Sequence[int], reduce: str | None
) -> Value:
    """Return ``x`` with ``updates`` written, or combined by ``reduce``, at ``places[..., i]`` on ``axes[i]``.

    The axes of ``places`` but the last come first in ``updates``, then those of ``x`` without ``axes``.
    """
    count = places.rank - 1
    window = range(count, updates.rank)
    properties = (
        f"indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = "
        f"{list_text(window)}, inserted_window_dims = {list_text(sorted(axes))}, "
        f"scatter_dims_to_operand_dims = {list_text(axes)}, index_vector_dim = {count}>, "
        "unique_indices = false"
    )
    scalar = type_text(x.dtype, ())
    head = f"^bb0(%$old: {scalar}, %$new: {scalar}): "
    if reduce is None:
        region = head + f"stablehlo.return %$new : {scalar}"
    else:
        region = (
            head + f"%$both = stablehlo.{COMBINED[reduce]} %$old, %$new : {scalar} "
            f"stablehlo.return %$both : {scalar}"
        )
    return b.generic("scatter", [x, places, updates], properties, region, [(x.dtype, x.shape)])[0]


def grid(b: Builder, index: Value, axis: int) -> list[Value]:
    """Return the index on each axis of the elements of ``index``: ``index`` itself on ``axis``, else a
    grid's."""
    return [
        b.convert(index, INT64) if a == axis else b.iota(INT64, index.shape, a) for a in range(index.rank)
    ]
