"""Samples of products of 8-bit numbers, against whole-number arithmetic."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tenon.testing.samples.draw import Draw, integer, normal, uniform
from tenon.testing.samples.table import add

Array = np.ndarray[Any, Any]


def _int8(*shape: int) -> Draw:
    return integer(-127, 128, *shape, dtype="int8")


def _steps(*shape: int) -> Draw:
    return dataclasses.replace(uniform(0.01, 0.1, *shape), dtype="float32")


def _dynamic(x: Array, weight: Array, scale: Array, bias: Array | None) -> Array:
    narrow = x.astype(np.float32)
    size = np.abs(narrow).max() if x.size else np.float32(0)
    rounded = np.rint(narrow * (np.float32(127) / size)) if size else narrow
    sums = rounded.astype(np.int64) @ weight.astype(np.int64).T
    out = sums.astype(np.float32) * (scale * (size / np.float32(127)))
    return (out if bias is None else out + bias).astype(x.dtype)


for _name, _x, _out, _bias, _more in (
    ("matrix", (5, 12), 7, True, {}),
    ("row", (12,), 7, True, {}),
    ("batch_without_bias", (2, 3, 12), 7, False, {}),
    ("one", (1, 1), 1, True, {}),
    ("no_rows", (0, 12), 7, True, {"tags": "empty"}),
    ("no_inner", (3, 0), 7, True, {"tags": "empty"}),
):  # fmt: skip
    add(
        "int8_dynamic_linear", _name, normal(*_x), _int8(_out, _x[-1]), _steps(_out),
        dataclasses.replace(normal(_out), dtype="float32") if _bias else None,
        reference=_dynamic, loose=16.0, narrow=False, **_more,
    )  # fmt: skip
add(
    "int8_dynamic_linear", "strided", normal(12, 5).in_layout("transposed"), _int8(7, 5), _steps(7), None,
    reference=_dynamic, tags="strided", loose=16.0, narrow=False,
)  # fmt: skip
add(
    "int8_dynamic_linear", "large", normal(40, 96), _int8(64, 96), _steps(64), None,
    reference=_dynamic, tags="large", loose=64.0, narrow=False,
)  # fmt: skip
