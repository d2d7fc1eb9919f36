"""Samples of movement: shapes, orders, joining, windows along an axis."""

from __future__ import annotations

import numpy as np

from tenon.testing.samples.draw import expanded, integer, normal, values
from tenon.testing.samples.table import add

for _op in ("reshape", "view"):
    _reference = lambda x, shape: x.reshape(shape)  # noqa: E731
    add(_op, "split", normal(6, 4), reference=_reference, attrs={"shape": (2, 3, 4)})
    add(_op, "join", normal(2, 3, 4), reference=_reference, attrs={"shape": (6, 4)})
    add(_op, "scalar", normal(1, 1), reference=_reference, attrs={"shape": ()}, tags="scalar")
    add(_op, "from_scalar", normal(), reference=_reference, attrs={"shape": (1, 1)}, tags="scalar")
    add(_op, "empty", normal(0, 4), reference=_reference, attrs={"shape": (2, 0, 7)}, tags="empty")
    add(
        _op,
        "new_axis",
        normal(3, 4).in_layout("transposed"),
        reference=_reference,
        attrs={"shape": (3, 1, 4)},
        tags="strided",
    )
add(
    "reshape",
    "copying",
    normal(3, 4).in_layout("transposed"),
    reference=lambda x, shape: x.reshape(shape),
    attrs={"shape": (12,)},
    tags="strided",
)
add(
    "reshape",
    "expanded",
    expanded((3, 1), 3, 4),
    reference=lambda x, shape: x.reshape(shape),
    attrs={"shape": (12,)},
    tags="expanded",
)

for _name, _axes in {"reverse": (2, 1, 0), "cycle": (1, 2, 0), "same": (0, 1, 2)}.items():
    add("permute", _name, normal(2, 3, 4), reference=lambda x, axes: x.transpose(axes), attrs={"axes": _axes})
add("permute", "scalar", normal(), reference=lambda x, axes: x, attrs={"axes": ()}, tags="scalar")
add(
    "permute",
    "empty",
    normal(0, 3),
    reference=lambda x, axes: x.transpose(axes),
    attrs={"axes": (1, 0)},
    tags="empty",
)
_swap = lambda x, axis0, axis1: x.swapaxes(axis0, axis1)  # noqa: E731
add("transpose", "matrix", normal(3, 4), reference=_swap, attrs={"axis0": 0, "axis1": 1})
add("transpose", "outer", normal(2, 3, 4), reference=_swap, attrs={"axis0": 0, "axis1": 2})
add("transpose", "same", normal(2, 3), reference=_swap, attrs={"axis0": 1, "axis1": 1})

_broadcast = lambda x, shape: np.broadcast_to(x, shape)  # noqa: E731
for _name, _from, _to in (
    ("column", (3, 1), (3, 4)), ("lead", (4,), (2, 3, 4)), ("scalar", (), (2, 3)), ("same", (2, 3), (2, 3)), ("empty", (1, 3), (0, 3)),
):  # fmt: skip
    add("expand", _name, normal(*_from), reference=_broadcast, attrs={"shape": _to})

for _name, _axes in {"first": (0,), "both": (0, 1), "none": ()}.items():
    add(
        "flip",
        _name,
        normal(3, 4),
        reference=lambda x, axes: np.flip(x, axes) if axes else x,
        attrs={"axes": _axes},
    )
add(
    "flip",
    "empty",
    normal(0, 4),
    reference=lambda x, axes: np.flip(x, axes),
    attrs={"axes": (1,)},
    tags="empty",
)
_roll = lambda x, shifts, axes: np.roll(x, shifts, axes)  # noqa: E731
add("roll", "one", normal(3, 4), reference=_roll, attrs={"shifts": (1,), "axes": (1,)})
add("roll", "two", normal(3, 4), reference=_roll, attrs={"shifts": (-1, 5), "axes": (0, 1)})

_cat = lambda *xs, axis: np.concatenate(xs, axis)  # noqa: E731
add("cat", "rows", normal(2, 3), normal(4, 3), reference=_cat, attrs={"axis": 0})
add("cat", "columns", normal(2, 3), normal(2, 1), normal(2, 2), reference=_cat, attrs={"axis": 1})
add("cat", "one", normal(2, 3), reference=_cat, attrs={"axis": 0})
add("cat", "empty", normal(0, 3), normal(2, 3), reference=_cat, attrs={"axis": 0}, tags="empty")
add(
    "cat",
    "mixed",
    normal(2, 3),
    integer(0, 5, 2, 3),
    reference=lambda x, y, axis: np.concatenate((x, y.astype(x.dtype)), axis),
    attrs={"axis": 0},
    tags="integer",
    narrow=False,
)
_stack = lambda *xs, axis: np.stack(xs, axis)  # noqa: E731
add("stack", "first", normal(2, 3), normal(2, 3), reference=_stack, attrs={"axis": 0})
add(
    "stack",
    "last",
    normal(2, 3),
    normal(2, 3).in_layout("strided"),
    reference=_stack,
    attrs={"axis": 2},
    tags="strided",
)
add("stack", "scalars", normal(), normal(), reference=_stack, attrs={"axis": 0}, tags="scalar")


def _slice(x: np.ndarray, axis: int, start: int, stop: int) -> np.ndarray:
    return x[(slice(None),) * axis + (slice(start, stop),)]


add("slice_axis", "middle", normal(3, 5), reference=_slice, attrs={"axis": 1, "start": 1, "stop": 4})
add(
    "slice_axis",
    "nothing",
    normal(3, 5),
    reference=_slice,
    attrs={"axis": 0, "start": 2, "stop": 2},
    tags="empty",
)


def _split(x: np.ndarray, sizes: tuple[int, ...], axis: int) -> tuple[np.ndarray, ...]:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


add("split", "uneven", normal(3, 6), reference=_split, attrs={"sizes": (1, 3, 2), "axis": 1})
add("split", "with_empty", normal(4, 2), reference=_split, attrs={"sizes": (4, 0), "axis": 0}, tags="empty")
_unbind = lambda x, axis: tuple(np.moveaxis(x, axis, 0))  # noqa: E731
add("unbind", "first", normal(3, 4), reference=_unbind, attrs={"axis": 0})
add("unbind", "last", normal(2, 3), reference=_unbind, attrs={"axis": 1})

_pad = lambda x, widths, value=0: np.pad(x, widths, constant_values=value)  # noqa: E731
add("pad", "both", normal(2, 3), reference=_pad, attrs={"widths": ((1, 0), (2, 3))})
add("pad", "value", normal(2, 3), reference=_pad, attrs={"widths": ((0, 1), (0, 0)), "value": 2.5})
add(
    "pad",
    "cut",
    normal(4, 5),
    reference=lambda x, widths: np.pad(x[1:], ((0, 1), (0, 0)))[:, :4],
    attrs={"widths": ((-1, 1), (0, -1))},
)
add("pad", "empty", normal(0, 3), reference=_pad, attrs={"widths": ((1, 1), (0, 0))}, tags="empty")
for _op in ("tril", "triu"):
    for _k in (-1, 0, 1):
        _reference = lambda x, k, op=_op: getattr(np, op)(x, k)  # noqa: E731
        add(_op, f"k_{_k}", normal(3, 4), reference=_reference, attrs={"k": _k})
    add(_op, "batch", normal(2, 3, 3), reference=lambda x, k, op=_op: getattr(np, op)(x, k), attrs={"k": 0})


def _diagonal(x: np.ndarray, offset: int = 0, axis0: int = 0, axis1: int = 1) -> np.ndarray:
    return np.diagonal(x, offset, axis0, axis1)


for _offset in (0, 1, -1):
    add(
        "diagonal",
        f"offset_{_offset}",
        normal(3, 4),
        reference=_diagonal,
        attrs={"offset": _offset, "axis0": 0, "axis1": 1},
    )
add("diagonal", "batch", normal(2, 3, 4), reference=_diagonal, attrs={"offset": 0, "axis0": 0, "axis1": 2})


def _windows(x: np.ndarray, axis: int, size: int, step: int) -> np.ndarray:
    views = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    return views[(slice(None),) * axis + (slice(None, None, step),)]


add("unfold_axis", "overlapping", normal(3, 6), reference=_windows, attrs={"axis": 1, "size": 3, "step": 1})
add("unfold_axis", "stepped", normal(7, 2), reference=_windows, attrs={"axis": 0, "size": 2, "step": 3})


def _diagonal_embed(x: np.ndarray, shape: tuple[int, ...], offset: int, axis0: int, axis1: int) -> np.ndarray:
    result = np.zeros(shape, x.dtype)
    for position in np.ndindex(x.shape):
        result[position[0] + max(-offset, 0), position[0] + max(offset, 0)] = x[position]
    return result


add(
    "diagonal_embed",
    "above",
    normal(3),
    reference=_diagonal_embed,
    attrs={"shape": (3, 4), "offset": 1, "axis0": 0, "axis1": 1},
)


def _fold(x: np.ndarray, shape: tuple[int, ...], axis: int, step: int) -> np.ndarray:
    result = np.zeros(shape, x.dtype)
    for window in range(x.shape[axis]):
        for i in range(x.shape[-1]):
            result[(slice(None),) * axis + (window * step + i,)] += x[
                (slice(None),) * axis + (window, Ellipsis, i)
            ]
    return result


add(
    "fold_axis",
    "overlapping",
    normal(3, 4, 3),
    reference=_fold,
    attrs={"shape": (3, 6), "axis": 1, "step": 1},
    loose=4.0,
)
for _op in ("unsqueeze", "squeeze"):
    _shape = (3, 1, 4) if _op == "unsqueeze" else (3, 4)
    add(
        _op,
        "middle",
        normal(*((3, 4) if _op == "unsqueeze" else (3, 1, 4))),
        reference=lambda x, shape: x.reshape(shape),
        attrs={"shape": _shape},
    )


add(
    "view_as_real",
    "vector",
    values(1 + 2j, 3 - 1j, dtype="complex128"),
    reference=lambda x: np.stack((x.real, x.imag), -1),
    order=0,
)
_pairs = lambda x: x[..., 0] + 1j * x[..., 1]  # noqa: E731
add("view_as_complex", "matrix", normal(3, 2), reference=_pairs, order=0, narrow=False)
add("view_as_complex", "apart", normal(3, 2).in_layout("transposed"), reference=_pairs, order=0, narrow=False)


#: Shape, strides and offset of a view, in elements.
Window = tuple[tuple[int, ...], tuple[int, ...], int]


def _strided(x: np.ndarray, window: Window, base: Window) -> np.ndarray:
    shape, steps, offset = window
    result = np.empty(shape, x.dtype)
    flat = x.reshape(-1)
    for position in np.ndindex(*shape):
        result[position] = flat[offset + sum(i * step for i, step in zip(position, steps, strict=True))]
    return result


_window = {"window": ((2, 3), (1, 2), 3), "base": ((3, 4), (4, 1))}
for _op in ("as_strided", "strided_read"):
    add(_op, "overlapping", normal(3, 4), reference=_strided, attrs=_window)
    add(
        _op,
        "scalar",
        normal(3, 4),
        reference=_strided,
        attrs=_window | {"window": ((), (), 5)},
        tags="scalar",
    )
    add(
        _op,
        "empty",
        normal(3, 4),
        reference=_strided,
        attrs=_window | {"window": ((0, 2), (1, 1), 2)},
        tags="empty",
    )


def _strided_sum(x: np.ndarray, window: Window, base: Window) -> np.ndarray:
    shape, steps, offset = window
    flat = np.zeros(base[0], x.dtype).reshape(-1)
    for position in np.ndindex(*shape):
        flat[offset + sum(i * step for i, step in zip(position, steps, strict=True))] += x[position]
    return flat.reshape(base[0])


add("strided_sum", "overlapping", normal(2, 3), reference=_strided_sum, attrs=_window)
