"""Products of 8-bit integers: exact sums, scales, zero points, packed weights, and without oneDNN."""

from __future__ import annotations

import numpy as np
import pytest

from tenon.extend import errors
from tenon_cpu.onednn import int8
from tenon_cpu.onednn.int8 import Int8Weight, int8_matmul
from tenon_cpu.onednn.runtime import available


@pytest.fixture(params=["oneDNN", "NumPy"])
def way(request, monkeypatch):
    if request.param == "NumPy":
        monkeypatch.setattr(int8, "available", lambda: False)
        return
    if not available():
        pytest.skip(available().reason)

    def refuse(*arguments):
        raise AssertionError("left to NumPy")

    monkeypatch.setattr(int8, "_by_numpy", refuse)


def integers(seed, dtype, *shape):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def expected(x, values, scale, columns, zero_point=0, bias=0):
    sums = (x.astype(np.int64) - zero_point) @ values.astype(np.int64)
    return sums * (scale * np.asarray(columns, np.float64)) + bias


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(1, 64, 48), (7, 33, 5), (64, 512, 96), (3, 1, 1)])
@pytest.mark.parametrize("zero_point", [0, 3, 128])
@pytest.mark.parametrize("biased", [True, False])
def test_sums_are_exact_and_scaled(way, dtype, shape, zero_point, biased):
    m, k, n = shape
    x, values = integers(0, dtype, m, k), integers(1, np.int8, k, n)
    columns = np.random.default_rng(2).uniform(0.01, 0.1, n).astype(np.float32)
    bias = np.random.default_rng(3).normal(size=n).astype(np.float32) if biased else None

    made = int8_matmul(x, Int8Weight(values, columns), 0.5, zero_point=zero_point, bias=bias)

    assert made.dtype == np.float32
    np.testing.assert_allclose(
        made, expected(x, values, 0.5, columns, zero_point, bias if biased else 0), rtol=2e-6, atol=1e-4
    )


def test_extreme_values_do_not_saturate(way):
    x, values = np.full((16, 1024), 255, np.uint8), np.full((1024, 32), -128, np.int8)

    made = int8_matmul(x, Int8Weight(values, 1.0), 1.0)

    assert (made == -255 * 128 * 1024).all()


def test_one_weight_serves_any_number_of_rows_and_leading_axes(way):
    values = integers(1, np.int8, 40, 24)
    weight = Int8Weight(values, 0.25)

    for shape in ((5, 40), (2, 3, 40), (40,), (100, 40)):
        x = integers(0, np.uint8, *shape)
        np.testing.assert_allclose(int8_matmul(x, weight, 2.0), expected(x, values, 2.0, 0.25), rtol=1e-6)


def test_two_weights_of_one_shape_do_not_mix(way):
    x = integers(0, np.int8, 6, 40)
    first, second = integers(1, np.int8, 40, 24), integers(2, np.int8, 40, 24)
    one, two = Int8Weight(first, 1.0), Int8Weight(second, 0.5)

    for values, weight, scale in ((first, one, 1.0), (second, two, 0.5), (first, one, 1.0)):
        np.testing.assert_allclose(int8_matmul(x, weight, 1.0), expected(x, values, 1.0, scale), rtol=1e-6)


def test_later_changes_of_the_values_do_not_reach_a_weight(way):
    x, values = integers(0, np.int8, 6, 40), integers(1, np.int8, 40, 24)
    weight, before = Int8Weight(values, 1.0), values.copy()

    values[:] = 0

    np.testing.assert_allclose(int8_matmul(x, weight, 1.0), expected(x, before, 1.0, 1.0), rtol=1e-6)


def test_operands_with_gaps_and_empty_ones():
    values = integers(1, np.int8, 24, 40).T
    x = integers(0, np.int8, 80, 12).T[:, ::2]

    made = int8_matmul(x, Int8Weight(values, 1.0), 1.0, bias=np.ones(48, np.float32)[::2])

    np.testing.assert_allclose(made, expected(x, values, 1.0, 1.0, bias=1), rtol=1e-6)
    assert int8_matmul(x[:0], Int8Weight(values, 1.0), 1.0).shape == (0, 24)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Int8Weight(np.ones((3, 3), np.float32), 1.0), "int8 values of 2 axes"),
        (lambda: Int8Weight(np.ones((3,), np.int8), 1.0), "int8 values of 2 axes"),
        (lambda: Int8Weight(np.ones((3, 4), np.int8), np.ones(3)), "scale has shape"),
        (lambda: Int8Weight(np.ones((70000, 1), np.int8), 1.0), "may pass 32 bits"),
        (lambda: int8_matmul(np.ones((3, 4)), Int8Weight(np.ones((4, 4), np.int8), 1), 1.0), "x is float64"),
        (
            lambda: int8_matmul(np.ones((3, 5), np.int8), Int8Weight(np.ones((4, 4), np.int8), 1), 1.0),
            "last axis",
        ),
        (
            lambda: int8_matmul(
                np.ones((3, 4), np.int8), Int8Weight(np.ones((4, 4), np.int8), 1), 1.0, bias=np.ones(4)
            ),
            "bias is float64",
        ),
    ],
)
def test_operands_that_do_not_fit_are_named(make, said):
    with pytest.raises(errors.ShapeError, match=said):
        make()
