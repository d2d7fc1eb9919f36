"""Samples of indexing, gather, scatter and order."""

from __future__ import annotations

import itertools
from types import EllipsisType

import numpy as np

from tenon.tensors.index_parsing import INDEX, filled
from tenon.testing.samples.draw import integer, normal, values
from tenon.testing.samples.table import add

ALL = slice(None)

for _name, _key in {
    "row": (1, ...), "slice": (slice(0, 2), ...), "step": (ALL, slice(0, 4, 2), ...), "new_axis": (None, ALL, 1, ...), "last": (..., 0),
    "everything": (...,), "nothing": (slice(2, 2), ...),
}.items():  # fmt: skip
    add("index", _name, normal(3, 4, 2), reference=lambda x, key: x[key], attrs={"key": _key})
add(
    "index",
    "strided",
    normal(3, 4).in_layout("transposed"),
    reference=lambda x, key: x[key],
    attrs={"key": (slice(1, 3), ...)},
    tags="strided",
)


#: Slices, integers, ellipses and None, one for each axis.
Key = tuple[int | slice | EllipsisType | None, ...]


def _embed(x: np.ndarray, shape: tuple[int, ...], key: Key) -> np.ndarray:
    result = np.zeros(shape, x.dtype)
    result[key] = x
    return result


add("embed", "row", normal(4), reference=_embed, attrs={"shape": (3, 4), "key": (1, ...)})
add(
    "embed",
    "step",
    normal(3, 2),
    reference=_embed,
    attrs={"shape": (3, 4), "key": (ALL, slice(0, 4, 2), ...)},
)


def _take(x: np.ndarray, *indices: np.ndarray, layout: Key) -> np.ndarray:
    return x[filled(layout, indices)]


def _put(
    x: np.ndarray, y: np.ndarray, *indices: np.ndarray, layout: Key, accumulate: bool = False
) -> np.ndarray:
    result = x.copy()
    if accumulate:
        np.add.at(result, filled(layout, indices), y)
    else:
        result[filled(layout, indices)] = y
    return result


add("take", "rows", normal(4, 3), integer(0, 4, 5), reference=_take, attrs={"layout": (INDEX, ALL)})
add("take", "negative", normal(4, 3), integer(-4, 4, 5), reference=_take, attrs={"layout": (INDEX, ALL)})
add("take", "columns", normal(4, 3), integer(0, 3, 2, 2), reference=_take, attrs={"layout": (ALL, INDEX)})
add(
    "take",
    "pairs",
    normal(4, 3),
    integer(0, 4, 5),
    integer(0, 3, 5),
    reference=_take,
    attrs={"layout": (INDEX, INDEX)},
)
add(
    "take",
    "apart",
    normal(4, 2, 3),
    integer(0, 4, 5),
    integer(0, 3, 2, 1),
    reference=_take,
    attrs={"layout": (INDEX, ALL, INDEX)},
)
add(
    "take",
    "empty",
    normal(4, 3),
    integer(0, 4, 0),
    reference=_take,
    attrs={"layout": (INDEX, ALL)},
    tags="empty",
)
add(
    "take",
    "large",
    normal(40, 30),
    integer(0, 40, 50),
    reference=_take,
    attrs={"layout": (INDEX, ALL)},
    tags="large",
)
add(
    "put",
    "rows",
    normal(4, 3),
    normal(2, 3),
    values(3, 1, dtype="int64"),
    reference=_put,
    attrs={"layout": (INDEX, ALL)},
)
add(
    "put",
    "broadcast",
    normal(4, 3),
    normal(3),
    values(0, 2, dtype="int64"),
    reference=_put,
    attrs={"layout": (INDEX, ALL)},
    tags="broadcast",
)
add(
    "put",
    "columns",
    normal(4, 3),
    normal(4, 2),
    values(0, 2, dtype="int64"),
    reference=_put,
    attrs={"layout": (ALL, INDEX)},
)
add(
    "put",
    "accumulate",
    normal(4, 3),
    normal(6, 3),
    integer(0, 4, 6),
    reference=_put,
    attrs={"layout": (INDEX, ALL), "accumulate": True},
)
add(
    "put",
    "accumulate_pairs",
    normal(4, 3),
    normal(6),
    integer(0, 4, 6),
    integer(0, 3, 6),
    reference=_put,
    attrs={"layout": (INDEX, INDEX), "accumulate": True},
)
add(
    "put",
    "accumulate_scalar",
    normal(4, 3),
    normal(),
    integer(0, 4, 6),
    reference=_put,
    attrs={"layout": (INDEX, ALL), "accumulate": True},
    tags="broadcast scalar",
)


def _gather(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    result = np.empty(index.shape, x.dtype)
    for position in np.ndindex(index.shape):
        source = list(position)
        source[axis] = index[position]
        result[position] = x[tuple(source)]
    return result


def _scatter(
    x: np.ndarray, index: np.ndarray, y: np.ndarray, axis: int, reduce: str | None = None
) -> np.ndarray:
    result = x.copy()
    y = np.broadcast_to(y, index.shape) if np.ndim(y) == 0 else y
    for position in np.ndindex(index.shape):
        target = list(position)
        target[axis] = index[position]
        at = tuple(target)
        result[at] = (
            y[position]
            if reduce is None
            else result[at] + y[position]
            if reduce == "add"
            else result[at] * y[position]
        )
    return result


add("gather", "rows", normal(4, 3), integer(0, 4, 5, 3), reference=_gather, attrs={"axis": 0})
add("gather", "columns", normal(4, 3), integer(0, 3, 4, 2), reference=_gather, attrs={"axis": 1})
add("gather", "smaller", normal(4, 3), integer(0, 4, 2, 2), reference=_gather, attrs={"axis": 0})
add("gather", "empty", normal(4, 3), integer(0, 4, 0, 3), reference=_gather, attrs={"axis": 0}, tags="empty")
add(
    "scatter",
    "replace",
    normal(4, 3),
    values(0, 2, 3, 1, 1, 0, shape=(2, 3), dtype="int64"),
    normal(2, 3),
    reference=_scatter,
    attrs={"axis": 0},
)
add(
    "scatter",
    "number",
    normal(4, 3),
    values(0, 2, 3, 1, 1, 0, shape=(2, 3), dtype="int64"),
    1.5,
    reference=_scatter,
    attrs={"axis": 0},
    tags="scalar",
)
add(
    "scatter",
    "add",
    normal(4, 3),
    integer(0, 4, 5, 3),
    normal(5, 3),
    reference=_scatter,
    attrs={"axis": 0, "reduce": "add"},
)
add(
    "scatter",
    "add_columns",
    normal(4, 3),
    integer(0, 3, 4, 6),
    normal(4, 6),
    reference=_scatter,
    attrs={"axis": 1, "reduce": "add"},
)
add(
    "scatter",
    "larger_source",
    normal(4, 3),
    values(0, 1, 2, shape=(1, 3), dtype="int64"),
    normal(2, 3),
    reference=_scatter,
    attrs={"axis": 0},
)


def _window_of(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.pad(x, [(0, n - s) for n, s in zip(shape, x.shape, strict=True)])


add("window_of", "corner", normal(2, 3), reference=_window_of, attrs={"shape": (4, 5)})


def _argsort(
    x: np.ndarray, axis: int, descending: bool = False, start: int = 0, stop: int | None = None
) -> np.ndarray:
    if descending:
        order = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - order
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    return np.moveaxis(np.moveaxis(order, axis, 0)[start:stop], 0, axis)


add("argsort", "last", normal(3, 5), reference=_argsort, attrs={"axis": 1})
add("argsort", "first", normal(3, 5), reference=_argsort, attrs={"axis": 0})
add("argsort", "stable", integer(0, 3, 30), reference=_argsort, attrs={"axis": 0}, tags="integer")
add(
    "argsort",
    "stable_descending",
    integer(0, 3, 30),
    reference=_argsort,
    attrs={"axis": 0, "descending": True},
    tags="integer",
)
add("argsort", "part", normal(9, 5), reference=_argsort, attrs={"axis": 0, "start": 2, "stop": 4})
add(
    "argsort",
    "largest",
    integer(0, 9, 40, 30),
    reference=_argsort,
    attrs={"axis": 1, "descending": True, "start": 0, "stop": 3},
    tags="integer",
)
add("argsort", "middle", normal(40, 31), reference=_argsort, attrs={"axis": 1, "start": 15, "stop": 16})
add("argsort", "empty", normal(0, 3), reference=_argsort, attrs={"axis": 0}, tags="empty")
add("nonzero", "matrix", integer(0, 2, 3, 4), reference=lambda x: np.stack(np.nonzero(x), 1), tags="integer")
add(
    "nonzero",
    "none",
    values(0, 0, dtype="int64"),
    reference=lambda x: np.stack(np.nonzero(x), 1),
    tags="integer",
)
_sorted = values(-1.0, 0.0, 0.0, 2.0)
for _right in (False, True):
    add("searchsorted", f"right_{_right}", _sorted, values(-2.0, 0.0, 1.0, 3.0), attrs={"right": _right},
        reference=lambda x, y, right: np.searchsorted(x, y, "right" if right else "left"))  # fmt: skip


def _segment_sum(x: np.ndarray, offsets: np.ndarray, *, end: int) -> np.ndarray:
    bounds = [*offsets, end]
    return np.stack([x[a:b].sum(0) for a, b in itertools.pairwise(bounds)])


def _segment_spread(x: np.ndarray, offsets: np.ndarray, *, end: int, rows: int) -> np.ndarray:
    result = np.zeros((rows, *x.shape[1:]), x.dtype)
    for row, a, b in zip(x, offsets, [*offsets[1:], end], strict=True):
        result[a:b] = row
    return result


def _scattered_extreme(
    x: np.ndarray, index: np.ndarray, y: np.ndarray, *, axis: int, reduce: str, include_self: bool
) -> np.ndarray:
    result = x.copy()
    for position in np.ndindex(result.shape):
        row, column = position
        scattered = [y[i, column] for i in range(index.shape[0]) if index[i, column] == row]
        if scattered:
            own = [x[position]] if include_self else []
            result[position] = (max if reduce == "amax" else min)([*own, *scattered])
    return result


_STARTS = values(0, 2, 2, 5, dtype="int64")
add("segment_sum", "bags", normal(7, 3), _STARTS, reference=_segment_sum, attrs={"end": 7}, loose=4.0)
add("segment_sum", "rest", normal(7, 3), _STARTS, reference=_segment_sum, attrs={"end": 6}, loose=4.0)
add("segment_spread", "bags", normal(4, 3), _STARTS, reference=_segment_spread, attrs={"end": 6, "rows": 7})
add(
    "scatter_prod",
    "columns",
    normal(4, 3),
    integer(0, 3, 4, 6),
    normal(4, 6),
    reference=lambda x, index, y, axis: _scatter(x, index, y, axis, "multiply"),
    attrs={"axis": 1},
    loose=8.0,
)
add(
    "scatter_prod",
    "larger_source",
    normal(4, 3),
    values(0, 1, 2, shape=(1, 3), dtype="int64"),
    normal(2, 3),
    reference=lambda x, index, y, axis: _scatter(x, index, y, axis, "multiply"),
    attrs={"axis": 0},
)


def _replaced(x: np.ndarray, y: np.ndarray, *, key: Key) -> np.ndarray:
    result = x.copy()
    result[key] = y
    return result


for _key, _shape in (((1,), (3,)), ((slice(None), slice(0, 3, 2)), (4, 2))):
    add("place", str(len(_key)), normal(4, 3), normal(*_shape), reference=_replaced, attrs={"key": _key})
for _reduce, _itself in (("amax", True), ("amin", False)):
    add(
        "scatter_extreme",
        f"{_reduce}_{'with' if _itself else 'without'}_itself",
        normal(4, 5),
        integer(0, 4, 3, 5),
        normal(4, 5),
        reference=_scattered_extreme,
        attrs={"axis": 0, "reduce": _reduce, "include_self": _itself},
    )
for _name in ("once", "refused"):
    add(
        _name,
        "nowhere",
        normal(2, 3),
        values(0, 0, 0, shape=(3,), dtype="bool"),
        reference=lambda x, mask, operation: x.copy(),
        attrs={"operation": "it"},
    )
