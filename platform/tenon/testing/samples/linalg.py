"""Samples of factorizations."""

from __future__ import annotations

import numpy as np

from tenon.testing.samples.draw import integer, normal, values
from tenon.testing.samples.table import add

_SQUARE = values(4.0, 1.0, 0.5, -1.0, 3.0, 0.25, 0.5, 1.5, 5.0, shape=(3, 3))
_POSITIVE = values(4.0, 1.0, 0.5, 1.0, 3.0, 0.25, 0.5, 0.25, 5.0, shape=(3, 3))
_TALL = normal(4, 3)


def _least_squares(a, b, values):
    solution, _, rank, singular = np.linalg.lstsq(a, b)
    return solution, np.asarray(rank, np.int64), singular if values else singular[:0]


add("inv", "matrix", _SQUARE, reference=np.linalg.inv, narrow=False, loose=20.0)
add(
    "pinv",
    "tall",
    _TALL,
    1e-6,
    0.0,
    reference=lambda x, rtol, atol: np.linalg.pinv(x),
    narrow=False,
    loose=20.0,
)
add("solve", "matrix", _SQUARE, normal(3, 2), reference=np.linalg.solve, narrow=False, loose=20.0)
add(
    "solve_adjoint",
    "from the beginning",
    _SQUARE,
    normal(3, 2),
    normal(0),
    integer(0, 1, 0),
    reference=lambda a, b, factors, pivots: np.linalg.solve(a.T, b),
    order=0,
    narrow=False,
    loose=20.0,
)
for _upper in (False, True):
    add(
        "solve_triangle",
        "upper" if _upper else "lower",
        _SQUARE,
        normal(3, 2),
        reference=lambda a, b, upper: np.linalg.solve(np.triu(a) if upper else np.tril(a), b),
        attrs={"upper": _upper},
        narrow=False,
        loose=20.0,
    )
for _valued in (False, True):
    add(
        "least_squares",
        "with values" if _valued else "alone",
        _TALL,
        normal(4, 2),
        attrs={"values": _valued},
        reference=_least_squares,
        narrow=False,
        loose=20.0,
        order=0,
    )
add("det", "matrix", _SQUARE, reference=lambda x: np.linalg.det(x).astype(x.dtype), narrow=False, loose=20.0)
add("slogdet", "matrix", _SQUARE, reference=lambda x: tuple(np.linalg.slogdet(x)), narrow=False, loose=20.0)
add(
    "cholesky",
    "matrix",
    _POSITIVE,
    reference=lambda x: np.linalg.cholesky(x),
    narrow=False,
    loose=20.0,
    order=0,
)
add(
    "svdvals",
    "matrix",
    _TALL,
    reference=lambda x: np.linalg.svd(x, compute_uv=False),
    narrow=False,
    loose=20.0,
    order=1,
)
add("qr", "matrix", _TALL, narrow=False, order=1)
add("svd_parts", "matrix", _TALL, narrow=False)
add("eigh", "matrix", _POSITIVE, narrow=False, order=0)
add("lu_parts", "matrix", _SQUARE, narrow=False, order=0)
add("lu_parts", "tall", normal(4, 3), narrow=False, order=0)
add("eig", "matrix", _SQUARE, narrow=False, order=0)
