"""Of zeros of both signs PyTorch's ops return a definite one; here it is the same one at any size and place."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tenon

pytestmark = pytest.mark.together

DTYPES = ("float16", "bfloat16", "float32", "float64")
SIZES = (1, 2, 7, 16, 33, 65, 5000, 70_000)
VALUES = (0.0, -0.0, 1.0, -1.0, 2.0, -4.0, 0.5, np.inf, -np.inf, np.nan)


def pairs(size, dtype):
    """Tensors of ``size`` in which every pair of ``VALUES`` occurs, if there is room, in changing places."""
    both = np.array([*itertools.product(VALUES, VALUES)])
    x, y = np.resize(np.roll(both, size // 2, 0), (size, 2)).T.copy()
    return (tenon.from_numpy(v).to(getattr(tenon, dtype)) for v in (x, y))


def exact(result):
    """The elements as float64, and their signs, of which that of NaN is none."""
    array = result.to(tenon.float64).numpy()
    return array, np.where(np.isnan(array), False, np.signbit(array))


def assert_same(result, expected):
    values, signs = exact(result)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(signs, np.where(np.isnan(expected), False, np.signbit(expected)))


def remainder(x, y):
    """PyTorch's: C's fmod, plus the divisor where it is not zero and has the other sign."""
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def first(extreme):
    """``extreme`` without NaN, of equal elements the first."""
    return lambda x, y: np.where(x == y, x, extreme(x, y))


def first_or_second(extreme):
    """The same, but of bfloat16 the second: ``fmax`` and ``fmin`` are so in PyTorch."""
    return {**dict.fromkeys(DTYPES, first(extreme)), "bfloat16": lambda x, y: first(extreme)(y, x)}


BINARY = {
    "remainder": (tenon.remainder, dict.fromkeys(DTYPES, remainder)),
    "fmod": (tenon.fmod, dict.fromkeys(DTYPES, np.fmod)),
    "fmax": (tenon.fmax, first_or_second(np.fmax)),
    "fmin": (tenon.fmin, first_or_second(np.fmin)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("size", SIZES)
def test_signs_of_zeros_in_results_of_two_tensors(name, dtype, size):
    op, formulas = BINARY[name]
    x, y = pairs(size, dtype)
    with np.errstate(invalid="ignore"):
        expected = formulas[dtype](exact(x)[0], exact(y)[0])

    assert_same(op(x, y), expected)
    assert_same(op(x, y, out=tenon.empty_like(x)), expected)
    if size in (7, 5000):
        program = tenon.compile(op)
        for _ in range(3):
            assert_same(program(x, y), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [2.0, -2.0, 1])
def test_remainder_of_zero_has_the_sign_of_the_dividend(dtype, number):
    x = tenon.tensor([-4.0, 4.0, -0.0, 0.0] * 3, dtype=getattr(tenon, dtype))

    assert_same(x % number, np.array([-0.0, 0.0] * 6))
    assert_same(x.clone().remainder_(number), np.array([-0.0, 0.0] * 6))
    assert_same(-4.0 % tenon.tensor([2.0, -2.0], dtype=x.dtype), np.array([-0.0, -0.0]))


LIMITED = {
    "relu": tenon.relu,
    "relu_": lambda x: x.clone().relu_(),
    "relu6": tenon.nn.functional.relu6,
    "min": lambda x: x.clamp(min=0.0),
    "max": lambda x: x.clamp(max=0.0),
    "both": lambda x: x.clamp(0, 0.0),
    "negative": lambda x: x.clamp(-0.0, -0.0),
    "in place": lambda x: x.clone().clamp_(-0.0, 1.0),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("size", SIZES)
def test_zeros_keep_their_sign_at_a_bound_of_zero(name, dtype, size):
    zeros = np.resize([0.0, -0.0, -0.0], size)
    x = tenon.from_numpy(zeros).to(getattr(tenon, dtype))

    assert_same(LIMITED[name](x), zeros)
    if size in (7, 5000):
        program = tenon.compile(LIMITED[name])
        for _ in range(3):
            assert_same(program(x), zeros)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nextafter_of_equal_numbers_is_the_second(dtype):
    x = tenon.tensor([0.0, -0.0, 0.0, 1.0], dtype=getattr(tenon, dtype))
    y = tenon.tensor([-0.0, 0.0, 0.0, 1.0], dtype=x.dtype)

    assert_same(tenon.nextafter(x, y), np.array([-0.0, 0.0, 0.0, 1.0]))
    assert_same(tenon.nextafter(x, y, out=tenon.empty_like(x)), np.array([-0.0, 0.0, 0.0, 1.0]))
