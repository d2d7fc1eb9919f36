"""erf and erfc against the C library, to their stated accuracy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.errors import UnsupportedError


def units(actual, expected, dtype):
    """Errors in units in the last place of the expected values."""
    return np.abs(actual.astype(np.float64) - expected) / np.spacing(np.abs(expected).astype(dtype)).astype(
        np.float64
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "limit"), [("erf", 3), ("erfc", 10)])
def test_accuracy_in_units_in_the_last_place(name, limit, dtype):
    x = np.concatenate([np.linspace(-6, 6, 20001), np.linspace(-1e-3, 1e-3, 1001)]).astype(dtype)
    expected = np.array([getattr(math, name)(float(v)) for v in x])

    actual = getattr(ops, name)(tenon.from_numpy(x)).numpy()

    assert actual.dtype == x.dtype
    assert units(actual, expected, dtype).max() <= limit


def test_the_tail_of_erfc_keeps_its_digits():
    x = np.linspace(6, 26, 201)

    actual = ops.erfc(tenon.from_numpy(x)).numpy()

    np.testing.assert_allclose(actual, [math.erfc(v) for v in x], rtol=3e-15)


def test_special_values():
    x = tenon.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")])

    assert str(ops.erf(x).tolist()) == "[0.0, -0.0, 1.0, -1.0, nan]"
    assert str(ops.erfc(x).tolist()) == "[1.0, 1.0, 0.0, 2.0, nan]"


def test_integers_become_floats_and_halves_stay_halves():
    assert ops.erf(tenon.tensor([0, 1])).dtype == tenon.float32
    assert ops.erf(tenon.ones(2, dtype=tenon.float16)).dtype == tenon.float16


@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_gradients_to_second_order(name):
    x = tenon.linspace(-3, 3, 13, dtype=tenon.float64, requires_grad=True)

    assert tenon.autograd.gradcheck(getattr(ops, name), (x,))
    assert tenon.autograd.gradgradcheck(getattr(ops, name), (x,))


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_in_place_takes_no_number(name):
    with pytest.raises(TypeError, match=r"argument 'other' \(position 1\) must be Tensor, not float"):
        getattr(tenon.ones(2), f"{name}_")(2.0)


@pytest.mark.parametrize("form", ["i0", "i0_", "xlogy", "xlogy_"])
def test_complex_numbers_are_refused_also_in_place(form):
    arguments = (tenon.ones(2),) if "xlogy" in form else ()

    with pytest.raises(UnsupportedError):
        getattr(tenon.ones(2, dtype=tenon.complex64), form)(*arguments)
