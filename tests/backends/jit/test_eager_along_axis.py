"""Compiled loops along an axis equal the reference forwards, also for infinities, NaN and indices out of range."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.errors import IndexRangeError
from tenon_cpu.jit.compiler import compile as jit

BACKEND = tenon.zeros(1)._backend
pytestmark = [
    pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}"),
    pytest.mark.together,
]
NAN, INF = np.float32("nan"), np.float32("inf")


def normal(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def kernel(name):
    return BACKEND.kernels[getattr(ops, name)]


def reference(name, *args, **attrs):
    return getattr(ops, name).forward(np, *args, **attrs)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_sums_along_every_axis(axis):
    x = normal(20, 30, 40)

    np.testing.assert_allclose(kernel("cumsum")(x, axis=axis), np.cumsum(x, axis), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_products_are_rounded_once(axis):
    x = normal(30, 40, 50)
    x[0, 0, :3], x[3, :5, 2] = (NAN, INF, -0.0), (1e30, 1e30, 1e-30, 0.0, -1.0)

    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.cumprod(x, axis, dtype=np.float64).astype(np.float32)

    np.testing.assert_array_equal(kernel("cumprod")(x, axis=axis), wanted)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_of_rows_find_nan_of_either_sign(name):
    x = normal(3, 70, 60)
    x[0, 0, 5], x[0, 1, 6], x[0, 2], x[0, 3, 7] = NAN, -NAN, INF, -INF

    made = kernel(name)(x, axes=(2,), keepdims=True)

    np.testing.assert_array_equal(made, reference(name, x, axes=(2,), keepdims=True))
    np.testing.assert_array_equal(kernel(name)(x[1:], axes=(1, 2)), reference(name, x[1:], axes=(1, 2)))


@pytest.mark.parametrize("odd", [0.0, -0.0, INF, -INF, NAN, -NAN, 1e-45, -1e-45])
@pytest.mark.parametrize("sign", [1, -1])
def test_extremes_are_those_of_numpy_whatever_the_signs(odd, sign):
    x = np.concatenate([sign * abs(normal(90, 40)), normal(90, 40), np.full((90, 40), odd, np.float32)])
    x[::3, 7] = odd

    for name, expected in (("amax", x.max(1)), ("amin", x.min(1))):
        found = kernel(name)(np.repeat(x, 2, 1)[:, ::2], axes=(1,))

        np.testing.assert_array_equal(found, expected)


def test_products_of_others_that_underflow_are_those_of_both_sides():
    x = normal(90, 200)
    x[1, 0], x[2, 199], x[3, 100], x[4, [0, 199]] = 0, 0, 0, 0
    x[5, :2], x[6, 0] = (INF, 0), NAN
    ones = np.ones((len(x), 1), np.float32)
    with np.errstate(all="ignore"):
        before = np.cumprod(np.hstack([ones, x[:, :-1]]), 1)
        expected = before * np.cumprod(np.hstack([ones, x[:, :0:-1]]), 1)[:, ::-1]

    made = kernel("prod_of_others")(x, axes=(1,))

    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-30)


def test_products_of_others_are_right_next_to_zeros():
    x = np.exp2(np.random.default_rng(4).integers(-1, 2, (300, 40))).astype(np.float32)
    x[0, 3], x[1, [2, 9]] = 0, 0
    others = [np.prod(np.delete(x[:3].astype(np.float64), i, 1), 1) for i in range(40)]

    made = kernel("prod_of_others")(x, axes=(1,))

    np.testing.assert_allclose(made[:3], np.stack(others, 1), rtol=1e-4)
    np.testing.assert_allclose(kernel("prod")(x, axes=(1,)), np.prod(x, 1), rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_lines_are_read_and_added_at_places(axis):
    x, index = normal(20, 30, 40), np.array([[3, 7, 3], [-1, 0, 19]])
    layout = tuple(None if a == axis else slice(None) for a in range(3))
    where = tuple(index if k is None else k for k in layout)
    layout = tuple(ops.indexing.INDEX if k is None else k for k in layout)
    expected = x.copy()
    np.add.at(expected, where, x[where])

    np.testing.assert_array_equal(kernel("take")(x, index, layout=layout), x[where])
    made = kernel("put")(x, x[where], index, layout=layout, accumulate=True)
    np.testing.assert_allclose(made, expected, rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reduce", [None, "add"])
def test_gathering_and_scattering_along_every_axis(axis, reduce):
    x = normal(20, 30, 40)
    index = np.argsort(normal(20, 30, 40)[::-1], axis)

    np.testing.assert_array_equal(kernel("gather")(x, index, axis=axis), np.take_along_axis(x, index, axis))
    np.testing.assert_allclose(
        kernel("scatter")(x, index, 2 * x, axis=axis, reduce=reduce),
        reference("scatter", x, index, 2 * x, axis=axis, reduce=reduce),
        rtol=1e-6,
    )


@pytest.mark.parametrize("outside", [-1, 30])
def test_a_place_outside_of_a_middle_axis_is_refused(outside):
    x, index = normal(20, 30, 40), np.zeros((20, 30, 40), np.int64)
    index[5, 6, 7] = outside

    with pytest.raises(IndexRangeError, match=f"index {outside} is out of bounds"):
        kernel("gather")(x, index, axis=1)
    with pytest.raises(IndexRangeError, match=f"index {outside} is out of bounds"):
        kernel("scatter")(x, index, x, axis=1)


@pytest.mark.parametrize("numbers", [False, True])
def test_remainders_are_exactly_those_of_numpy(numbers):
    x, y = 9 * normal(100, 100), normal(200, 100)[100:]
    x[0, :6], y[0, :6] = [0, -0.0, 3, 5, 1e-30, -1e-30], [1, 1, 3, -2.5, 1, 1]
    y = 0.7 if numbers else y

    np.testing.assert_array_equal(kernel("remainder")(x, y), np.remainder(x, y))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_remainders_of_huge_quotients_and_infinities_are_those_of_numpy():
    x, y = normal(100, 100), normal(200, 100)[100:]
    x[0, :3], y[0, :3] = [1e20, INF, 1], [1e-3, 1, -INF]

    np.testing.assert_array_equal(kernel("remainder")(x, y), np.remainder(x, y))


@pytest.mark.parametrize("name", ["erf", "erfc", "copysign"])
def test_functions_without_a_loop_in_numpy_keep_to_their_reference(name):
    x = 3 * normal(90, 100)
    x[0, :5] = [NAN, INF, -INF, 0, -0.0]
    args = (x, x[::-1].copy()) if name == "copysign" else (x,)

    np.testing.assert_allclose(kernel(name)(*args), reference(name, *args), rtol=2e-6, atol=1e-7)


def test_a_norm_is_the_root_of_the_sum_of_squares():
    x = normal(30, 40, 50)

    made = kernel("vector_norm")(x, order=2.0, axes=(1, 2), keepdims=True)

    np.testing.assert_allclose(made, np.sqrt((x * x).sum((1, 2), keepdims=True)), rtol=1e-5)


@pytest.mark.parametrize("k", [-200, -3, 0, 2, 200])
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles_keep_what_the_reference_keeps(name, k):
    x = normal(2, 90, 70)
    x[0, 3, 3], x[1, 80, 2] = NAN, INF

    np.testing.assert_array_equal(kernel(name)(x, k=k), reference(name, x, k=k))
    np.testing.assert_array_equal(
        kernel(name)(x.transpose(0, 2, 1), k=k), reference(name, x.transpose(0, 2, 1), k=k)
    )


def test_cubes_are_products():
    x = normal(100, 200)
    x[0, :4] = NAN, INF, -INF, -0.0

    np.testing.assert_array_equal(kernel("pow")(x, 3), x * x * x)
    np.testing.assert_array_equal(kernel("pow")(x.T, 3.0), (x * x * x).T)
