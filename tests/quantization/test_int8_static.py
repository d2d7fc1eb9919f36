"""Static int8 products and convolutions: kernels equal integer arithmetic."""

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.kernels.backend import backend_named
from tenon.ops.quantized import int8_conv, int8_linear
from tenon_cpu.onednn import available

pytestmark = pytest.mark.together

F = backend_named("cpu").raw
needs_onednn = pytest.mark.skipif(not available(), reason="oneDNN is not available")
WAYS = [pytest.param("kernel", marks=needs_onednn), "reference"]

STEPS = {"x_step": 0.25, "out_step": None, "out_zero": 0, "relu": False}


def sums_of(x, values, zero, attrs):
    """Compute sums by loops over the window, in 64-bit integers."""
    stride, padding, dilation, groups = (attrs[n] for n in ("stride", "padding", "dilation", "groups"))
    wide = x.astype(np.int64) - zero
    wide = np.pad(wide, [(0, 0), (0, 0), *((p, p) for p in padding)])
    (o, i, *kernel), n = values.shape, x.shape[0]
    sizes = [
        (s - d * (k - 1) - 1) // t + 1
        for s, d, k, t in zip(wide.shape[2:], dilation, kernel, stride, strict=True)
    ]
    made = np.zeros((n, o, *sizes), np.int64)
    for place in np.ndindex(*kernel):
        cut = tuple(
            slice(a * d, a * d + t * (size - 1) + 1, t)
            for a, d, t, size in zip(place, dilation, stride, sizes, strict=True)
        )
        seen = wide[(slice(None), slice(None), *cut)].reshape(n, groups, i, *sizes)
        taps = values[(slice(None), slice(None), *place)].reshape(groups, o // groups, i).astype(np.int64)
        made += np.einsum("ngi...,goi->ngo...", seen, taps).reshape(made.shape)
    return made


def finished(sums, scale, bias, out_step=None, out_zero=0, relu=False, x_step=0.25):
    shape = (1, -1, *(1,) * (sums.ndim - 2))
    made = sums * (scale.astype(np.float64) * x_step).reshape(shape) + (
        0 if bias is None else bias.reshape(shape)
    )
    made = np.maximum(made, 0) if relu else made
    return (
        made.astype(np.float32) if out_step is None else np.clip(np.rint(made / out_step + out_zero), 0, 255)
    )


def numbers(rng, outputs, biased):
    scale = (2.0 ** rng.integers(-9, -6, outputs)).astype(np.float32)
    return scale, rng.integers(-4, 5, outputs).astype(np.float32) if biased else None


FINISHES = [
    {}, {"relu": True}, {"out_step": 0.5}, {"out_step": 0.5, "out_zero": 11}, {"out_step": 0.5, "relu": True},
    {"out_step": 0.5, "out_zero": 11, "relu": True},
]  # fmt: skip


@pytest.mark.parametrize("finish", FINISHES, ids=str)
@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("way", WAYS)
def test_products_are_those_of_whole_numbers(way, zero, finish):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (9, 40)).astype(np.uint8)
    values = rng.integers(-127, 128, (24, 40)).astype(np.int8)
    scale, bias = numbers(rng, 24, True)
    attrs = STEPS | finish | {"x_zero": zero}

    call = F.int8_linear if way == "kernel" else lambda *a, **k: int8_linear.forward(np, *a, **k)
    made, of_floats = (
        call(given, values, scale, bias, **attrs) for given in (x, ((x - np.float32(zero)) / 4))
    )

    expected = finished((x.astype(np.int64) - zero) @ values.astype(np.int64).T, scale, bias, **finish)
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(of_floats, expected)


GEOMETRIES = [
    {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1},
    {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2), "groups": 2},
    {"stride": (2,), "padding": (1,), "dilation": (1,), "groups": 1},
    {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 16},
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=["plain", "groups", "line", "depthwise"])
@pytest.mark.parametrize("finish", FINISHES, ids=str)
@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("way", WAYS)
def test_convolutions_are_those_of_whole_numbers(way, zero, finish, geometry):
    rng = np.random.default_rng(1)
    rank, groups = len(geometry["stride"]), geometry["groups"]
    x = rng.integers(0, 256, (3, 16, 9, 8)[: rank + 2]).astype(np.uint8)
    values = rng.integers(-127, 128, (16, 16 // groups, *(3,) * rank)).astype(np.int8)
    scale, bias = numbers(rng, 16, finish.get("relu", False))
    attrs = STEPS | finish | geometry | {"x_zero": zero}
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)

    call = F.int8_conv if way == "kernel" else lambda *a, **k: int8_conv.forward(np, *a, **k)
    made, strided, of_floats = (
        call(given, values, scale, bias, **attrs) for given in (x, last, ((x - np.float32(zero)) / 4))
    )

    expected = finished(sums_of(x, values, zero, geometry), scale, bias, **finish)
    for found in (made, strided, of_floats):
        np.testing.assert_array_equal(found, expected)
    assert made.flags.c_contiguous or made.dtype == np.uint8


@needs_onednn
def test_extreme_sums_do_not_saturate():
    x, values, scale = (
        np.full((16, 1024), 255, np.uint8),
        np.full((32, 1024), -128, np.int8),
        np.ones(32, np.float32),
    )
    image, filters = x.reshape(16, 64, 4, 4), values.reshape(32, 64, 4, 4)
    geometry = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}

    products = F.int8_linear(x, values, scale, None, **STEPS, x_zero=0)
    convolved = F.int8_conv(image, filters, scale, None, **STEPS, x_zero=0, **geometry)

    assert (products == -255 * 128 * 1024 / 4).all() and (convolved == -255 * 128 * 1024 / 4).all()


@needs_onednn
def test_kernels_serve_what_they_are_for(monkeypatch):
    rng = np.random.default_rng(2)
    x = rng.integers(0, 256, (2, 8, 6, 6)).astype(np.uint8)
    values = rng.integers(-127, 128, (8, 8, 3, 3)).astype(np.int8)
    for op in (int8_conv, int8_linear):
        monkeypatch.setattr(op, "forward", None)

    scale = np.ones(8, np.float32)
    F.int8_conv(x, values, scale, None, **STEPS, x_zero=3, **GEOMETRIES[0])
    F.int8_linear(x[0, 0], values[:, :6, 0, 0], scale, None, **STEPS, x_zero=3)


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [((2, 2), (2, 2), (0, 0)), ((3, 2), (2, 1), (1, 0))], ids=str
)
def test_pools_give_the_largest_of_each_window(last, kernel, stride, padding):
    x = np.random.default_rng(3).integers(0, 256, (2, 16, 7, 6)).astype(np.uint8)
    wide = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    seen = np.lib.stride_tricks.sliding_window_view(wide, kernel, axis=(2, 3))[
        :, :, :: stride[0], :: stride[1]
    ]
    given = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1) if last else x

    made = ops.int8_max_pool(tenon.from_numpy(given), kernel=kernel, stride=stride, padding=padding)

    np.testing.assert_array_equal(made.numpy(), seen.max(axis=(-2, -1)))


def test_steps_of_a_result_that_passes_255_or_0_stop_there():
    x, values = (
        tenon.tensor([[255, 255]], dtype=tenon.uint8),
        tenon.tensor([[127, 127], [-127, -127]], dtype=tenon.int8),
    )

    made = ops.int8_linear(
        x, values, tenon.ones(2), None, **STEPS | {"out_step": 1.0, "out_zero": 5}, x_zero=0
    )

    assert made.tolist() == [[255, 0]] and made.dtype is tenon.uint8


@pytest.mark.parametrize(
    ("x", "words"),
    [(tenon.zeros(2, 4, dtype=tenon.int8), "uint8 or float32"), (tenon.zeros(2, 3), "has 3 features")],
)
def test_what_does_not_fit_is_named(x, words):
    with pytest.raises((tenon.errors.ShapeError, tenon.errors.DTypeError), match=words):
        ops.int8_linear(x, tenon.zeros(3, 4, dtype=tenon.int8), tenon.ones(3), None, **STEPS, x_zero=0)


@pytest.mark.parametrize("wrong", [{"padding": 2}, {"stride": 0}, {"kernel_size": 9}], ids=str)
def test_pools_of_steps_refuse_what_pools_of_floats_refuse(wrong):
    x, given = tenon.zeros(1, 2, 6, 6), {"kernel_size": 2} | wrong
    said = []
    for image in (x, x.to(tenon.uint8)):
        with pytest.raises(tenon.errors.ShapeError) as caught:
            tenon.nn.functional.max_pool2d(image, **given)
        said.append(str(caught.value))

    assert said[0] == said[1]
