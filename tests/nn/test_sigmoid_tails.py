"""The sigmoid and SiLU keep their digits where they are small, in arrays of any size, eager and compiled."""

import numpy as np
import pytest

import tenon

LOWEST = {"float32": -87.0, "float64": -700.0, "float16": -9.0, "bfloat16": -87.0}
DIGITS = {"float32": 1e-6, "float64": 1e-14, "float16": 1e-2, "bfloat16": 1e-2}


@pytest.mark.parametrize("size", [1, 7, 300, 5000, 100_000])
@pytest.mark.parametrize("name", LOWEST)
@pytest.mark.parametrize("compiled", [False, True])
def test_small_results_are_right_to_the_last_digits(name, size, compiled):
    x = tenon.linspace(LOWEST[name], 20.0, size).to(getattr(tenon, name))
    wide = x.double().numpy()
    expected = 1 / (1 + np.exp(-wide))
    sigmoid, silu = tenon.sigmoid, tenon.nn.functional.silu
    if compiled:
        sigmoid, silu = tenon.compile(lambda t: sigmoid_of(t)), tenon.compile(lambda t: silu_of(t))
        for _ in range(3):
            sigmoid(x), silu(x)
    np.testing.assert_allclose(sigmoid(x).double().numpy(), expected, rtol=DIGITS[name])
    np.testing.assert_allclose(silu(x).double().numpy(), expected * wide, rtol=DIGITS[name])


def sigmoid_of(t):
    return tenon.sigmoid(t)


def silu_of(t):
    return tenon.nn.functional.silu(t)


def test_results_beyond_the_range_are_0_and_1():
    x = tenon.tensor([-float("inf"), -1e30, 1e30, float("inf"), float("nan")])
    assert tenon.equal(tenon.sigmoid(x)[:4], tenon.tensor([0.0, 0.0, 1.0, 1.0]))
    assert tenon.sigmoid(x)[4].isnan()
