"""Compiled int8 models: the same numbers as eager ones, without copies where images keep their layout."""

import numpy as np
import pytest

import tenon
from tenon import nn, ops
from tenon_cpu.onednn import available
from tenon_cpu.onednn.int8 import generated

needs_onednn = pytest.mark.skipif(not available(), reason="oneDNN is not available")
needs_exact = pytest.mark.skipif(not generated(), reason="exact 8-bit products are generated for AVX2")


class Block(nn.Module):
    """Two convolutions and a third, summed and rectified."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.aside = nn.Conv2d(inputs, outputs, 1, stride)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.second(self.act(self.first(x))) + self.aside(x))


def network():
    tenon.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), Block(16, 16), Block(16, 24, 2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(24, 5),
    ).eval()  # fmt: skip


def quantized(model, x):
    return tenon.quantize(model, "int8", [x], batch_sizes=(2,)).model


def test_an_image_network_with_sums_gives_what_it_gives_eagerly():
    model, x = network(), tenon.randn(4, 3, 18, 18)
    small = quantized(model, x)
    with tenon.no_grad():
        compiled = tenon.compile(small)
        for again in (x, tenon.randn(4, 3, 18, 18), x):
            np.testing.assert_allclose(compiled(again).numpy(), small(again).numpy(), rtol=1e-5, atol=1e-5)


@needs_exact
def test_images_are_turned_where_they_come_in_and_where_they_leave_and_nowhere_else():
    model, x = network(), tenon.randn(4, 3, 18, 18)
    small = quantized(model, x)
    compiled = tenon.compile(lambda x: small(x))
    with tenon.no_grad():
        for _ in range(3):
            compiled(x)
    (program,) = compiled.programs

    assert program.source.count("# reorder") == 2, program.source


@pytest.mark.parametrize("shape", [(1, 48), (7, 48), (2, 3, 48)], ids=str)
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("spec", ["int8-dynamic", "int8"])
def test_products_are_those_of_eager_calls(spec, biased, shape):
    tenon.manual_seed(0)
    x = tenon.randn(*shape)
    small = tenon.quantize(nn.Linear(48, 20, bias=biased), spec, [x]).model
    with tenon.no_grad():
        compiled = tenon.compile(small)
        for again in (x, 2 * x, x):
            np.testing.assert_array_equal(compiled(again).numpy(), small(again).numpy())


def test_a_weight_that_may_be_written_counts_from_the_next_call_on():
    x, weight, scale = tenon.randn(5, 32), tenon.ones(8, 32, dtype=tenon.int8), tenon.ones(8)

    def product(x):
        return ops.int8_dynamic_linear(x, weight, scale, None)

    compiled = tenon.compile(product)
    compiled(x)
    before = compiled(x).numpy().copy()
    weight.mul_(-2)

    np.testing.assert_allclose(compiled(x).numpy(), -2 * before, rtol=1e-6)


def test_numbers_for_each_output_need_not_be_contiguous():
    x, weight = tenon.randn(2, 3, 6, 6), tenon.ones(4, 3, 3, 3, dtype=tenon.int8)
    scale, bias = tenon.rand(8)[::2], tenon.rand(8)[::2]
    steps = {"x_step": 0.1, "x_zero": 3, "out_step": None, "out_zero": 0, "relu": True}
    geometry = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}

    def convolve(x):
        return ops.int8_conv(x, weight, scale, bias, **steps, **geometry)

    np.testing.assert_allclose(tenon.compile(convolve)(x).numpy(), convolve(x).numpy(), rtol=1e-6)


def test_sums_that_may_not_fit_32_bits_are_left_to_the_reference():
    inner = 70_000
    x, weight, scale = tenon.ones(2, inner), tenon.full((3, inner), 127, dtype=tenon.int8), tenon.ones(3)

    compiled = tenon.compile(lambda x: ops.int8_dynamic_linear(x, weight, scale, None))
    for _ in range(3):
        made = compiled(x)

    np.testing.assert_allclose(made.numpy(), np.full((2, 3), 127.0 * inner), rtol=1e-5)
