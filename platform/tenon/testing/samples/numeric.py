"""Samples of special functions, number theory and order along an axis."""

from __future__ import annotations

import math

import numpy as np

from tenon.testing.samples.draw import integer, normal, uniform, values
from tenon.testing.samples.table import add


def _xlogy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
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


def _upper_gamma(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the upper incomplete gamma function of the orders 1/2, 1 and 3, which is elementary."""
    half, one, three = np.moveaxis(np.asarray(y, float), -1, 0)
    third = np.exp(-three) * (1 + three + three**2 / 2)
    return np.stack([np.vectorize(math.erfc)(np.sqrt(half)), np.exp(-one), third], -1).astype(y.dtype)


def _hurwitz(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the Hurwitz zeta function by 20000 terms and an integral."""
    s, q = np.asarray(x, float), np.asarray(y, float)
    total = sum((q + k) ** -s for k in range(20000))
    return (total + (q + 19999.5) ** (1 - s) / (s - 1)).astype(y.dtype)


add("digamma", "positive", uniform(0.4, 6, 3, 4), order=1)
add("polygamma", "first", uniform(0.4, 6, 3, 4), attrs={"order": 1}, order=1)


def _mode(x: np.ndarray, axis: int) -> np.ndarray:
    def last_of_mode(row: np.ndarray) -> np.ndarray:
        unique, counts = np.unique(row, return_counts=True)
        return np.flatnonzero(row == unique[np.argmax(counts)])[-1]

    return np.apply_along_axis(last_of_mode, axis, x)


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
add(
    "rectangular",
    "broadcast",
    normal(3, 1),
    normal(4),
    reference=lambda x, y: x + 1j * y,
    tags="broadcast",
    narrow=False,
    order=0,
)
add("frexp", "matrix", normal(3, 4), reference=np.frexp, order=1, graded=1)
add(
    "whole_power",
    "negative",
    integer(-3, 4, 3, 4),
    integer(-3, 4, 4),
    reference=lambda x, y: np.trunc(np.power(x.astype(float) + (x == 0), y) * ((x != 0) | (y == 0))).astype(
        x.dtype
    ),
    tags="integer broadcast",
)
_ORDER = values(0.5, 1.0, 3.0)
add(
    "igamma",
    "orders",
    _ORDER,
    uniform(0.2, 6, 4, 3),
    reference=lambda x, y: 1 - _upper_gamma(x, y),
    constant=(0,),
    narrow=False,
    loose=50.0,
)
add(
    "igammac",
    "orders",
    _ORDER,
    uniform(0.2, 6, 4, 3),
    reference=_upper_gamma,
    constant=(0,),
    narrow=False,
    loose=50.0,
)
add(
    "zeta",
    "same",
    uniform(2, 6, 3, 4),
    uniform(0.4, 6, 3, 4),
    reference=_hurwitz,
    constant=(0,),
    narrow=False,
    loose=50.0,
)
