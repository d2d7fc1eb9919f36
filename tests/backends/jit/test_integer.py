"""Products of 8-bit integers, computed on 16-bit integers: exact for all shapes and geometries."""

import numpy as np
import pytest

from tenon import ops
from tenon.ops.quantized import rounded
from tenon_cpu.jit import integer
from tenon_cpu.jit.loops import rounding
from tenon_cpu.onednn.int8_dynamic import DynamicWords
from tenon_cpu.onednn.int8_static import STEPS
from tenon_cpu.onednn.int8_words import ConvolutionWords, LinearWords

pytestmark = [
    pytest.mark.skipif(not integer.usable(), reason="no AVX2, or no compiler"),
    pytest.mark.together,
]
GEOMETRY = ("stride", "padding", "dilation", "groups")


def weights(rng, shape):
    """Return int8 weights over the whole range, and a scale and a bias for each output."""
    values = rng.integers(-128, 128, shape).astype(np.int8)
    values.flat[0], values.flat[-1] = -128, 127
    return values, rng.random(shape[0], np.float32) / 64, rng.standard_normal(shape[0]).astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 64, 40), (5, 33, 17), (6, 34, 16), (103, 70, 130)], ids=str)
def test_rounded_rows_give_the_reference_s_bits(shape):
    rng = np.random.default_rng(0)
    rows, inner, columns = shape
    weight, scale, bias = weights(rng, (columns, inner))
    product = DynamicWords(rows, inner, columns)
    for x in (rng.standard_normal((rows, inner)), np.zeros((rows, inner)), np.full((rows, inner), np.nan)):
        x, out = x.astype(np.float32), np.empty((rows, columns), np.float32)
        product(x, weight, scale, bias, out)

        np.testing.assert_array_equal(out, ops.int8_dynamic_linear.forward(np, x, weight, scale, bias))


@pytest.mark.parametrize("out", [(None, 0), (0.75, 9)], ids=["floats", "steps"])
@pytest.mark.parametrize("relu", [False, True], ids=["all", "rectified"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_steps_of_rows_give_the_reference_s_bits(dtype, relu, out):
    rng = np.random.default_rng(1)
    weight, scale, bias = weights(rng, (19, 45))
    steps = 0.125, 100, *out, relu
    x = rng.integers(0, 256, (13, 45)).astype(np.uint8)
    x = x if dtype == "uint8" else (x.astype(np.float32) - 90) * np.float32(0.13)
    made = np.empty((13, 19), np.float32 if out[0] is None else np.uint8)
    LinearWords(13, 45, 19, steps)(x, weight, scale, bias, made)

    wanted = ops.int8_linear.forward(np, x, weight, scale, bias, **dict(zip(STEPS, steps, strict=True)))
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize(
    ("x", "weight", "geometry"),
    [
        ((2, 3, 9, 11), (20, 3, 3, 3), ((1, 1), (1, 1), (1, 1), 1)),
        ((1, 5, 8, 7), (16, 5, 1, 1), ((2, 3), (0, 0), (1, 1), 1)),
        ((1, 4, 10, 12), (7, 4, 3, 2), ((2, 1), (2, 1), (2, 3), 1)),
        ((2, 8, 6, 6), (12, 4, 3, 3), ((1, 1), (1, 1), (1, 1), 2)),
        ((3, 4, 17), (5, 4, 5), ((3,), (2,), (1,), 1)),
        ((1, 2, 5, 4, 6), (3, 2, 2, 3, 3), ((1, 2, 1), (1, 0, 1), (1, 1, 1), 1)),
    ],
    ids=["same", "one", "holes", "groups", "line", "volume"],
)
@pytest.mark.parametrize("out_step", [None, 0.5], ids=["floats", "steps"])
def test_convolutions_give_the_reference_s_bits_from_images_of_every_order(x, weight, geometry, out_step):
    rng = np.random.default_rng(2)
    weight, scale, bias = weights(rng, weight)
    steps = 0.125, 100, out_step, 9 if out_step else 0, False
    image = rng.integers(0, 256, x).astype(np.uint8)
    named = dict(zip((*STEPS, *GEOMETRY), (*steps, *geometry), strict=True))
    wanted = ops.int8_conv.forward(np, image, weight, scale, bias, **named)
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(image, 1, -1)), -1, 1)
    for given, lies_last in ((image, False), (last, True)):
        made = np.empty((x[0], *wanted.shape[2:], wanted.shape[1]), wanted.dtype)
        product = ConvolutionWords((x, weight.shape, wanted.shape), steps, geometry, lies_last, False)
        product(given, weight, scale, bias, made)
        plain = np.empty(wanted.shape, wanted.dtype)
        if out_step is None:
            ConvolutionWords((x, weight.shape, wanted.shape), steps, geometry, lies_last, True)(
                given, weight, scale, bias, plain
            )

        np.testing.assert_array_equal(np.moveaxis(made, -1, 1), wanted)
        assert out_step or np.array_equal(plain, wanted)


def test_a_weight_that_changed_is_packed_again():
    rng = np.random.default_rng(3)
    weight, scale, bias = weights(rng, (8, 16))
    x, out = rng.standard_normal((4, 16)).astype(np.float32), np.empty((4, 8), np.float32)
    product = DynamicWords(4, 16, 8)
    product(x, weight, scale, bias, out)
    weight[...] = 3
    product(x, weight, scale, bias, out)

    np.testing.assert_array_equal(out, ops.int8_dynamic_linear.forward(np, x, weight, scale, bias))


def test_rows_that_threads_share_are_rounded_alike():
    rng = np.random.default_rng(4)
    weight, scale, bias = weights(rng, (8, 4096))
    x, out = rng.standard_normal((100, 4096)).astype(np.float32), np.empty((100, 8), np.float32)
    product = DynamicWords(100, 4096, 8)
    for given in (x, np.zeros_like(x), x * np.float32(np.inf)):
        product(given, weight, scale, bias, out)

        np.testing.assert_array_equal(out, ops.int8_dynamic_linear.forward(np, given, weight, scale, bias))


@pytest.mark.parametrize("kind", ["numbers", "ties", "zeros", "tiny", "infinite", "nan"])
def test_rounding_at_once_is_the_reference_s(kind):
    x = np.random.default_rng(5).standard_normal((7, 33)).astype(np.float32)
    x = {"ties": np.rint(x) / 2, "zeros": x * 0, "tiny": x * np.float32(1e-37)}.get(kind, x).astype(
        np.float32
    )
    x[0, 0] = {"ties": 127, "infinite": -np.inf, "nan": np.nan}.get(kind, x[0, 0])
    step, whole, words = np.empty(1, np.float32), np.empty(x.size, np.uint8), np.empty(x.size, np.uint16)
    wanted_step, wanted = rounded(np, x)
    for kernel, out, signed in (
        (rounding.all_to_bytes, whole, np.int8),
        (rounding.all_to_words, words, np.int16),
    ):
        kernel(x.reshape(-1), step, out)

        np.testing.assert_array_equal(step[0], wanted_step)
        np.testing.assert_array_equal(out.view(signed), wanted.reshape(-1))
