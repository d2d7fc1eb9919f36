"""Sorting by integer keys keeps the order of NumPy: NaN last, stable ties, both zeros equal."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops

pytestmark = pytest.mark.together

BACKEND = tenon.zeros(1)._backend
DTYPES = ["float32", "float64", "int64", "int32", "int16", "uint8", "bool"]


def values(dtype, *shape):
    x = np.random.default_rng(8).integers(-9, 9, shape)
    if not dtype.startswith("float"):
        return x.astype(dtype)
    x = x.astype(dtype)
    x[3, :6] = [np.nan, -np.inf, np.inf, -0.0, 0.0, -np.nan]
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 4), (0, 0), (11, 12), (39, 40), (2, 5)])
def test_parts_of_the_order_are_those_of_the_reference(dtype, axis, descending, start, stop):
    x, attrs = values(dtype, 90, 95), {"axis": axis, "descending": descending, "start": start, "stop": stop}

    expected = ops.argsort.forward(np, x, **attrs)

    for argsort in (BACKEND.kernels[ops.argsort],):
        np.testing.assert_array_equal(argsort(x, **attrs), expected)


def test_integers_of_more_than_32_bits_are_sorted_too():
    x = np.array([1 << 40, -(1 << 50), 3] * 400)

    made = BACKEND.kernels[ops.argsort](x, axis=0)

    np.testing.assert_array_equal(made, np.argsort(x, kind="stable"))
