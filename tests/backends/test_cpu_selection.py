"""The CPU kernel of ``where`` against NumPy's, bit for bit."""

import numpy as np
import pytest

import tenon
from tenon.errors import DTypeError
from tenon_cpu.kernels import selection

pytestmark = pytest.mark.together

INFINITE = float("inf")


def where(condition, x, y):
    if selection.is_supported(condition, x, y):
        return selection.where(condition, x, y)
    return np.where(condition, x, y)


def special(shape, dtype):
    values = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    if values.size > 4:
        values.reshape(-1)[:5] = [np.inf, -np.inf, np.nan, 0.0, -0.0]
    return values


def bits(array):
    return np.where(np.isnan(array), 1.0, array), np.signbit(array)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(8, 4, 32, 32), (64, 64), (5000,), (3, 0, 4), ()])
@pytest.mark.parametrize("value", [0, 0.0, -0.0, -INFINITE, 3, 2.5, True])
def test_selection_between_an_array_and_a_number_is_numpys(dtype, shape, value):
    array = special(shape, dtype)
    masks = {shape, shape[-2:], shape[-1:], (1,) * len(shape), (), (1, *shape), (2, *shape)}
    for mask in masks:
        condition = np.asarray(np.random.default_rng(1).random(mask) > 0.5)
        for x, y in ((value, array), (array, value)):
            made, expected = where(condition, x, y), np.where(condition, x, y)

            assert made.dtype == expected.dtype and made.shape == expected.shape
            for ours, numpys in zip(bits(made), bits(expected), strict=True):
                assert np.array_equal(ours, numpys)


def test_a_number_that_the_dtype_cannot_hold_is_refused_by_masked_fill_and_infinite_in_where():
    mask, x = tenon.ones(128, dtype=tenon.bool), tenon.zeros(64, 128)

    with pytest.raises(DTypeError, match="cannot be converted to type float32 without overflow"):
        x.masked_fill(mask, -1e300)
    assert (tenon.where(mask, -1e300, x) == -INFINITE).all()


def test_neither_the_mask_nor_the_array_is_changed():
    array, condition = special((16, 32, 32), "float32"), np.tri(32, dtype=bool)
    before = array.copy(), condition.copy()

    where(condition, 0, array)
    where(np.broadcast_to(condition, array.shape).copy(), array, 1.0)

    assert np.array_equal(array, before[0], equal_nan=True) and np.array_equal(condition, before[1])
