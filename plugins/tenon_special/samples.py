"""Samples of the ops of this plugin, against numerical integrals."""

from __future__ import annotations

import math

import numpy as np

from tenon.testing.samples import add, values

_X = values(0.1, -1.5, 3.0, 7.5, -20.0, 31.0, -45.0, 0.6, shape=(2, 4))


def _erfcx(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda v: math.exp(v * v) * math.erfc(v))(np.asarray(x, np.float64)).astype(x.dtype)


add("erfcx", "both sides", values(-1.0, 0.0, 0.5, 3.0, 5.9, 6.1, 9.0, 20.0), reference=_erfcx, narrow=False)


def _first_kind(x: np.ndarray, order: int) -> np.ndarray:
    """Return ``J_order(x)`` by the rectangle rule."""
    angle = (np.arange(400) + 0.5) / 400 * math.pi
    return np.cos(order * angle - np.asarray(x, np.float64)[..., None] * np.sin(angle)).mean(-1)


def _third_kind(x: np.ndarray, order: int, scaled: int) -> np.ndarray:
    """Return ``K_order(x)``, the integral of ``exp(-x cosh t) cosh(order t)``."""
    t, step = np.linspace(0, 12, 4801, retstep=True)
    wide = np.asarray(x, np.float64)[..., None]
    part = np.exp(-wide * (np.cosh(t) - 1.0 * scaled)) * np.cosh(order * t)
    return (part.sum(-1) - part[..., 0] / 2) * step


_RIGHT = values(0.1, 1.5, 3.0, 7.5, 20.0, 31.0, 45.0, 0.6, shape=(2, 4))
for _order in (0, 1):
    add(
        f"bessel_j{_order}",
        "both sides",
        _X,
        reference=lambda x, n=_order: _first_kind(x, n).astype(x.dtype),
        narrow=False,
        loose=20.0,
    )
    add(f"bessel_y{_order}", "right side", _RIGHT, narrow=False)
    for _scale, _name in enumerate(("modified_bessel_k", "scaled_modified_bessel_k")):
        add(
            f"{_name}{_order}",
            "right side",
            _RIGHT,
            reference=lambda x, n=_order, s=_scale: _third_kind(x, n, s).astype(x.dtype),
            narrow=False,
            loose=50.0,
        )
add(
    "airy_ai",
    "zeros",
    values(-2.338107410459767, -4.08794944413097, -7.944133587120853, 0.0),
    reference=lambda x: np.array([0, 0, 0, 0.355028053887817239]).astype(x.dtype),
    narrow=False,
    loose=50.0,
)
