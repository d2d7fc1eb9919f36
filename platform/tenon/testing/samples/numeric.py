"""Samples of special functions, number theory and order along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.testing.samples.draw import integer, normal, uniform, values
from tenon.testing.samples.table import add


def _xlogy(x: Any, y: Any) -> Any:
    return np.where((x == 0) & ~np.isnan(y), 0, x * np.log(y)).astype(x.dtype)


_lgamma = np.vectorize(math.lgamma, otypes=[float])
add("copysign", "same", normal(3, 4), normal(3, 4), reference=np.copysign)
add("copysign", "broadcast", normal(3, 1), normal(4), reference=np.copysign, tags="broadcast")
add("heaviside", "same", values(-1.0, 0.0, 2.0), values(0.5, 0.5, 0.5), reference=np.heaviside)
add("nextafter", "same", normal(3, 4), normal(3, 4), reference=np.nextafter, narrow=False)
add(
    "gcd", "integers", integer(-20, 20, 3, 4), integer(-20, 20, 4), reference=np.gcd, tags="integer broadcast"
)
add("lcm", "integers", integer(-9, 9, 3, 4), integer(-9, 9, 4), reference=np.lcm, tags="integer broadcast")
add("xlogy", "same", normal(3, 4), uniform(0.3, 3, 3, 4), reference=_xlogy)
add("xlogy", "zero", values(0.0, 0.0, 1.0), values(0.0, 2.0, 3.0), reference=_xlogy, tags="non-smooth")
add("sinc", "matrix", normal(3, 4), reference=np.sinc)
add("sinc", "zero", values(0.0, 1.0), reference=np.sinc, tags="non-smooth", narrow=False)
add(
    "lgamma",
    "positive",
    uniform(0.4, 6, 3, 4),
    reference=lambda x: _lgamma(x).astype(x.dtype),
    narrow=False,
    loose=20.0,
    order=1,
)
add("digamma", "positive", uniform(0.4, 6, 3, 4), order=1)
add("polygamma", "first", uniform(0.4, 6, 3, 4), attrs={"order": 1}, order=1)


def _mode(x: Any, axis: int) -> Any:
    def place(row: Any) -> Any:
        found, counts = np.unique(row, return_counts=True)
        return np.flatnonzero(row == found[np.argmax(counts)])[-1]

    return np.apply_along_axis(place, axis, x)


add("mode_index", "rows", integer(0, 3, 4, 7), attrs={"axis": 1}, tags="integer")
for _largest in (True, False):
    add("running_extreme", f"largest_{_largest}", normal(3, 5), attrs={"axis": 1, "largest": _largest})
add(
    "logcumsumexp",
    "rows",
    normal(3, 5),
    reference=lambda x, axis: np.log(np.cumsum(np.exp(x), axis)),
    attrs={"axis": 1},
    loose=8.0,
    order=1,
)
for _op in ("real", "imag"):
    add(_op, "complex", values(1 + 2j, 3 - 1j, dtype="complex128"), reference=getattr(np, _op), order=0)
