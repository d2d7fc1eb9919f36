"""Samples of modified Bessel functions, against numerical integrals."""

from __future__ import annotations

import math

import numpy as np

from tenon.testing.samples.draw import values
from tenon.testing.samples.table import add

_X = values(0.1, -1.5, 3.0, 7.5, -20.0, 31.0, -45.0, 0.6, shape=(2, 4))


def _scaled(x, order):
    """Return ``exp(-|x|) I_order(x)`` by the rectangle rule, which is exact for periodic functions."""
    angle = np.arange(400) * (2 * math.pi / 400)
    wide = np.asarray(x, np.float64)[..., None]
    part = np.exp(wide * np.cos(angle) - np.abs(wide)) * np.cos(order * angle)
    return part.mean(-1)


for _order in (0, 1):
    add(
        f"i{_order}e",
        "both sides",
        _X,
        reference=lambda x, n=_order: _scaled(x, n).astype(x.dtype),
        narrow=False,
    )
    add(
        f"i{_order}",
        "both sides",
        _X,
        reference=lambda x, n=_order: (_scaled(x, n) * np.exp(np.abs(np.asarray(x, np.float64)))).astype(
            x.dtype
        ),
        narrow=False,
        loose=20.0,
    )
