"""Multiply-add with one rounding, against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from tenon.random.fma import fma32, fma64

SCALES = [(1.0, 0.0), (1.0, 0.3), (0.6, -0.3), (2.5, 0.0), (1e-3, 7.0), (3.0, -1e-8), (0.1, 1e10)]


def _rounded_once(x, a, b, kind):
    exact = Fraction(float(x)) * Fraction(float(a)) + Fraction(float(b))
    if kind == np.float64:
        return float(exact)
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(around, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(np.int32)) & 1))


@pytest.mark.parametrize(("a", "b"), SCALES)
@pytest.mark.parametrize(
    ("fma", "kind"), [(fma32, np.float32), (fma64, np.float64)], ids=["float32", "float64"]
)
def test_multiply_add_rounds_once(fma, kind, a, b):
    x = np.random.default_rng(0).uniform(-4, 4, 300).astype(kind)

    result = fma(x, kind(a), kind(b))

    assert result.dtype == kind
    assert result.tolist() == [float(_rounded_once(v, kind(a), kind(b), kind)) for v in x]


def test_float32_sum_that_would_round_twice_rounds_once():
    # The exact sum lies 2**-44 below the middle of b and its successor. float64 rounds it to the middle,
    # from where float32 would go up to the even neighbour.
    x, a = np.array([1 + 2.0**-15], np.float32), np.float32(2.0**-14 * (1 - 2.0**-15))
    b = np.float32(2.0**10 + 2.0**-13)
    assert np.float32(float(x[0]) * float(a) + float(b)) != b

    assert fma32(x, a, b)[0] == b


def test_float32_rounding_is_right_where_float64_sums_are_inexact():
    x = (np.random.default_rng(1).integers(0, 2**24, 4000) * 2.0**-24).astype(np.float32)
    a = np.float32(40.1)

    for b in (2.0**29, 2.0**30, -(2.0**31)):
        assert fma32(x, a, np.float32(b)).tolist() == [float(_rounded_once(v, a, b, np.float32)) for v in x]


def test_zero_products_become_positive_zero():
    assert not np.signbit(fma32(np.array([-0.0], np.float32), np.float32(2), np.float32(0)))[0]
    assert not np.signbit(fma64(np.array([-0.0]), 2.0, 0.0))[0]
