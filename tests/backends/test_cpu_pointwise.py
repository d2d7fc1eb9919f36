"""Elementwise kernels by faster NumPy functions equal the reference."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon_cpu.kernels import direct

pytestmark = pytest.mark.together

BACKEND = tenon.zeros(1)._backend
NAN, INF = np.float32("nan"), np.float32("inf")


def kernel(name):
    return BACKEND.kernels[getattr(tenon.ops, name)]


def values():
    x = np.random.default_rng(8).standard_normal((40, 50)).astype(np.float32)
    x[0, :5] = [NAN, INF, -INF, 0, -0.0]
    return x


@pytest.mark.parametrize("exponent", [2, 3, 3.0, 0.5, -1, -0.5, np.int64(3), np.float32(2), 2.5, 0])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_by_products_and_roots(exponent):
    x = np.abs(values())

    made = kernel("pow")(x, exponent)

    assert made.dtype == np.float32
    np.testing.assert_allclose(made, np.power(x, np.float32(exponent)), rtol=1e-6)


@pytest.mark.parametrize("bounds", [(-0.5, 0.5), (None, 0.5), (-0.5, None), (1, -1), (float("nan"), 1)])
def test_limits_given_by_numbers(bounds):
    np.testing.assert_array_equal(
        kernel("clamp")(values(), *bounds), ops.clamp.forward(np, values(), *bounds)
    )


def test_the_sign_of_nan_and_of_zeros_is_0():
    np.testing.assert_array_equal(direct.sign(values())[0, :5], [0, 1, -1, 0, 0])
    np.testing.assert_array_equal(direct.sign(values())[1:], np.sign(values()[1:]))


def test_only_zeros_are_false():
    np.testing.assert_array_equal(kernel("logical_not")(values()), np.logical_not(values()))


@pytest.mark.parametrize("slope", [0.01, 1.0, 0.0, 2.0, -0.5])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_leaky_relu_of_any_slope(slope):
    x = values()

    made = kernel("leaky_relu")(x, slope=slope)

    np.testing.assert_array_equal(made, np.where(x > 0, x, x * np.float32(slope)))


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (2, 1), (0, 1, 2)])
def test_products_of_others_over_any_axes(axes):
    x = np.random.default_rng(5).standard_normal((3, 4, 1 if axes == (2,) else 5))
    x[1, 2, 0] = 0

    made = kernel("prod_of_others")(x, axes=axes)

    np.testing.assert_allclose(made, ops.prod_of_others.decompose(BACKEND.raw, x, axes=axes), rtol=1e-12)
