"""Convolutions of 8-bit integers: exact sums, scales, zero points at the edge, groups, and without oneDNN."""

from __future__ import annotations

import numpy as np
import pytest

from tenon.extend import errors
from tenon.ops import conv
from tenon_cpu.onednn import int8_convolution as own
from tenon_cpu.onednn.int8_convolution import Int8Filter, int8_convolution
from tenon_cpu.onednn.runtime import available


@pytest.fixture(params=["oneDNN", "NumPy"])
def way(request, monkeypatch):
    if request.param == "NumPy":
        monkeypatch.setattr(own, "available", lambda: False)
    elif not available():
        pytest.skip(available().reason)
    return request.param


def integers(seed, dtype, *shape):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def attrs_of(rank, stride=1, padding=1, dilation=1, groups=1):
    return {
        "stride": (stride,) * rank, "padding": (padding,) * rank, "dilation": (dilation,) * rank, "groups": groups,
    }  # fmt: skip


CASES = [
    # rank, channels, filters, window, the rest
    (2, 16, 32, 3, {}),
    (2, 3, 5, 3, {"stride": 2}),
    (2, 8, 8, 3, {"groups": 8}),
    (2, 32, 32, 3, {"groups": 2, "dilation": 2, "padding": 2}),
    (2, 64, 16, 1, {"padding": 0}),
    (1, 4, 6, 5, {"padding": 2}),
    (3, 4, 6, 3, {}),
]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("zero_point", [0, 7])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_are_exact_and_scaled(way, case, biased, zero_point, dtype):
    rank, channels, filters, window, rest = case
    attrs = attrs_of(rank, **rest)
    x = integers(0, dtype, 2, channels, *(9, 8, 7)[:rank])
    values = integers(1, np.int8, filters, channels // attrs["groups"], *(window,) * rank)
    scale = np.random.default_rng(2).uniform(0.01, 0.1, filters).astype(np.float32)
    bias = np.random.default_rng(3).normal(size=filters).astype(np.float32) if biased else None
    each = (1, filters, *(1,) * rank)

    for _ in range(2):  # the second finds it prepared
        made = int8_convolution(x, Int8Filter(values, scale), 0.5, zero_point=zero_point, bias=bias, **attrs)

        sums = conv.forward(np, x.astype(np.float64) - zero_point, values.astype(np.float64), **attrs)
        expected = sums * 0.5 * scale.reshape(each) + (bias.reshape(each) if biased else 0)
        assert made.dtype == np.float32
        np.testing.assert_allclose(made, expected, rtol=2e-6, atol=1e-3)
        x, values = x[::-1], values[::-1]  # other values, in other orders of memory


def test_extreme_values_do_not_saturate(way):
    x, values = np.full((1, 64, 8, 8), 255, np.uint8), np.full((16, 64, 3, 3), -128, np.int8)

    made = int8_convolution(x, Int8Filter(values, 1.0), 1.0, **attrs_of(2, padding=0))

    assert (made == -255.0 * 128 * 64 * 9).all()


def test_an_empty_batch_gives_an_empty_result(way):
    made = int8_convolution(
        np.zeros((0, 4, 5, 5), np.int8), Int8Filter(np.ones((6, 4, 3, 3), np.int8), 1.0), 1.0, **attrs_of(2)
    )

    assert made.shape == (0, 6, 5, 5)


def test_a_weight_is_packed_once_and_not_changed_from_outside():
    if not available():
        pytest.skip(available().reason)
    values = integers(1, np.int8, 8, 4, 3, 3)
    weight, x = Int8Filter(values, 1.0), integers(0, np.int8, 1, 4, 6, 6)
    before = int8_convolution(x, weight, 1.0, **attrs_of(2))

    values[...] = 0

    np.testing.assert_array_equal(int8_convolution(x, weight, 1.0, **attrs_of(2)), before)
    assert len(weight._packed) <= 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Int8Filter(np.zeros((4, 4), np.int8), 1.0), "3 to 5 axes"),
        (lambda: Int8Filter(np.zeros((4, 2, 3), np.int8), np.ones(3)), "one for each filter"),
        (lambda: Int8Filter(np.zeros((1, 70000, 1), np.int8), 1.0), "32 bits"),
        (
            lambda: int8_convolution(
                np.zeros((1, 2, 5)), Int8Filter(np.zeros((4, 2, 3), np.int8), 1.0), 1.0, **attrs_of(1)
            ),
            "give int8 or uint8",
        ),
        (
            lambda: int8_convolution(
                np.zeros((1, 2, 5), np.int8), Int8Filter(np.zeros((4, 2, 3), np.int8), 1.0), 1.0,
                bias=np.zeros(3, np.float32), **attrs_of(1),
            ),
            "float32\\[4\\]",
        ),
    ],
)  # fmt: skip
def test_operands_that_do_not_fit_are_named(make, said):
    with pytest.raises(errors.ShapeError, match=said):
        make()
