"""Samples of comparisons, tests and bit operations."""

from __future__ import annotations

import numpy as np

from tenon.testing.samples.draw import boolean, integer, normal, values
from tenon.testing.samples.table import Reference, add

_EXTREME = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0)


def _pairs(op: str, reference: Reference) -> None:
    add(op, "same", normal(3, 4), normal(3, 4), reference=reference)
    add(op, "broadcast", normal(3, 1), normal(2, 1, 4), reference=reference, tags="broadcast")
    add(
        op, "integers", integer(-3, 3, 3, 4), integer(-3, 3, 4), reference=reference, tags="integer broadcast"
    )
    add(op, "number", integer(-3, 3, 3, 4), 1, reference=reference, tags="integer scalar")
    add(op, "scalar", normal(), normal(), reference=reference, tags="scalar")
    add(op, "empty", normal(0, 3), normal(3), reference=reference, tags="empty")
    add(op, "extreme", values(*_EXTREME), values(*reversed(_EXTREME)), reference=reference, tags="extreme")


for _op, _reference in {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}.items():  # fmt: skip
    _pairs(_op, _reference)
for _op, _reference in {
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "signbit": np.signbit, "logical_not": np.logical_not,
}.items():  # fmt: skip
    add(_op, "matrix", normal(3, 4), reference=_reference)
    add(_op, "scalar", normal(), reference=_reference, tags="scalar")
    add(_op, "empty", normal(0, 3), reference=_reference, tags="empty")
    add(_op, "extreme", values(*_EXTREME), reference=_reference, tags="extreme")
for _op, _reference in {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift,
}.items():  # fmt: skip
    add(
        _op, "integers", integer(0, 9, 3, 4), integer(0, 5, 4), reference=_reference, tags="integer broadcast"
    )
    add(
        _op,
        "narrow",
        integer(0, 9, 3, 4, dtype="uint8"),
        integer(0, 3, 3, 4, dtype="uint8"),
        reference=_reference,
        tags="integer",
    )
    add(_op, "number", integer(0, 9, 5), 2, reference=_reference, tags="integer scalar")
for _op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    add(_op, "booleans", boolean(3, 4), boolean(4), reference=getattr(np, _op), tags="broadcast")
add("bitwise_not", "integers", integer(-9, 9, 3, 4), reference=np.invert, tags="integer")
add("bitwise_not", "booleans", boolean(3, 4), reference=np.invert)
