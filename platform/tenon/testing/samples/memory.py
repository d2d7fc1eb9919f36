"""Samples of casts, copies, aliases and filled arrays."""

from __future__ import annotations

import numpy as np

from tenon.device import Device
from tenon.testing.samples.draw import boolean, expanded, integer, normal
from tenon.testing.samples.table import add

for _op in ("clone", "contiguous", "alias", "ordered"):
    add(_op, "matrix", normal(3, 4), reference=lambda x: x)
    add(_op, "scalar", normal(), reference=lambda x: x, tags="scalar")
    add(_op, "empty", normal(0, 4), reference=lambda x: x, tags="empty")
    add(_op, "transposed", normal(3, 4).in_layout("transposed"), reference=lambda x: x, tags="strided")
    add(_op, "strided", normal(3, 4).in_layout("strided"), reference=lambda x: x, tags="strided")
    add(_op, "expanded", expanded((3, 1), 3, 4), reference=lambda x: x, tags="expanded")


def _cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return x.astype(dtype)


for _name, _to in {"int64": np.int64, "bool": np.bool_, "float16": np.float16}.items():
    add("cast", _name, normal(3, 4), reference=_cast, attrs={"dtype": np.dtype(_to)}, order=0)
add("cast", "double", normal(3, 4), reference=_cast, attrs={"dtype": np.dtype(np.float64)})
add(
    "cast",
    "from_integers",
    integer(-5, 5, 3),
    reference=_cast,
    attrs={"dtype": np.dtype(np.float32)},
    tags="integer",
)
add("cast", "from_booleans", boolean(3), reference=_cast, attrs={"dtype": np.dtype(np.float64)})


def _copy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.broadcast_to(y, x.shape).astype(x.dtype)


add("copy", "same", normal(3, 4), normal(3, 4), reference=_copy)
add("copy", "broadcast", normal(3, 4), normal(4), reference=_copy, tags="broadcast")
add("copy", "number", normal(3, 4), 1.5, reference=_copy, tags="scalar")
add("copy", "cast", normal(3, 4), integer(0, 5, 3, 4), reference=_copy, tags="integer")


def _full(x: np.ndarray, shape: tuple[int, ...], value: complex, dtype: np.dtype | None = None) -> np.ndarray:
    return np.full(shape, value, x.dtype if dtype is None else dtype)


add("new_full", "zeros", normal(2), reference=_full, attrs={"shape": (3, 4), "value": 0})
add(
    "new_full",
    "integers",
    normal(2),
    reference=_full,
    attrs={"shape": (2, 0), "value": 7, "dtype": np.dtype(np.int64)},
    tags="empty",
)
add("zeros_like", "matrix", normal(3, 4), reference=np.zeros_like)
_CPU = {"device": Device("cpu"), "source": Device("cpu")}
add("to_device", "host", normal(3, 4), reference=lambda x, device, source: x, attrs=_CPU)
