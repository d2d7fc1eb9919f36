"""Kernels of the CPU backend equal the reference forwards at sizes where work is divided among threads."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops

pytestmark = pytest.mark.together

BACKEND = tenon.zeros(1)._backend
F = BACKEND.raw


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def reference(name, *args, **attrs):
    """The result of the op without its kernel; of composites, that of their parts."""
    op = ops.__getattr__(name)
    if hasattr(op, "forward"):
        return op.forward(np, *args, **attrs)
    return op.raw_forward(F, *args, **attrs)


def agree(name, *args, tolerance=2e-6, **attrs):
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    kernel = BACKEND.kernels[ops.__getattr__(name)]
    actual, expected = kernel(*args, **attrs), reference(name, *args, **attrs)
    pairs = zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    for a, e in pairs:
        assert np.shape(a) == np.shape(e)
        assert np.asarray(a).dtype == np.asarray(e).dtype
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)
    for a, b in zip(args, before, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b, err_msg=f"{name} changed an argument")


WIDE = [(300, 257), (2, 3, 4, 5000), (1, 70000), (70000, 1)]


@pytest.mark.parametrize("shape", WIDE)
def test_softmax_and_its_kin(rng, shape):
    x, g = normal(rng, *shape) * 4, normal(rng, *shape)
    axis = len(shape) - 1
    for name in ("softmax", "log_softmax"):
        agree(name, x, axis=axis, tolerance=1e-5)
        out = getattr(F, name)(x, axis=axis)
        agree(f"{name}_grad", g, out, axis=axis, tolerance=1e-4)


@pytest.mark.parametrize("shape", [(300, 257), (2, 30, 40, 50)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(rng, shape, affine):
    x, g = normal(rng, *shape), normal(rng, *shape)
    weight, bias = (normal(rng, shape[-1]), normal(rng, shape[-1])) if affine else (None, None)
    agree("layer_norm", x, weight, bias, rank=1, eps=1e-5, tolerance=1e-4)
    _, mean, deviation = BACKEND.kernels[ops.layer_norm](x, weight, bias, rank=1, eps=1e-5)
    if affine:
        agree("layer_norm_grad", g, x, weight, mean, deviation, rank=1, needs=(True,) * 3, tolerance=2e-3)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(rng, approximate):
    agree("gelu", normal(rng, 90, 1111) * 3, approximate=approximate)
    agree("gelu", np.linspace(-12, 12, 100001, dtype=np.float32), approximate=approximate)
    agree("gelu", normal(rng, 30, 40, dtype=np.float64), approximate=approximate)


def test_silu(rng):
    agree("silu", normal(rng, 90, 1111) * 5)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [True, False])
def test_cross_entropy(rng, reduction, weighted):
    x, target = normal(rng, 700, 130) * 5, rng.integers(0, 130, 700)
    target[::7] = 3
    weight = np.abs(normal(rng, 130)) if weighted else None
    attrs = {"reduction": reduction, "ignore_index": 3}
    agree("cross_entropy", x, target, weight, **attrs, tolerance=2e-5)
    loss, total = BACKEND.kernels[ops.cross_entropy](x, target, weight, **attrs)
    agree(
        "cross_entropy_grad", normal(rng, *np.shape(loss)), x, total, target, weight, **attrs, tolerance=1e-5
    )


def test_relu_and_its_gradient(rng):
    x, g = normal(rng, 300, 1000), normal(rng, 300, 1000)
    agree("relu", x, tolerance=0)
    agree("relu_grad", g, np.maximum(x, 0), tolerance=0)


def test_an_infinite_gradient_at_a_closed_gate_is_zero(rng):
    out = np.zeros(10000, np.float32)
    out[1] = 1

    made = F.relu_grad(np.full(10000, np.inf, np.float32), out)

    assert made[1] == np.inf
    assert not made[2:].any()


POOLS = [
    ((2, 2), (2, 2), (24, 24)),
    ((2, 2), (2, 2), (9, 7)),
    ((2, 3), (2, 3), (25, 26)),
    ((2, 2), (3, 4), (23, 22)),
    ((1, 4), (1, 4), (9, 16)),
]


@pytest.mark.parametrize(("kernel", "stride", "size"), POOLS)
@pytest.mark.parametrize("ties", [True, False])
def test_max_pooling(rng, kernel, stride, size, ties):
    x = rng.integers(0, 3, (7, 11, *size)).astype(np.float32) if ties else normal(rng, 7, 11, *size)
    attrs = {"kernel": kernel, "stride": stride, "padding": (0, 0), "dilation": (1, 1), "ceil_mode": False}
    agree("max_pool", x, **attrs, tolerance=0)
    out = F.max_pool(x, **attrs)
    agree("max_pool_grad", normal(rng, *out.shape), x, out, **attrs, tolerance=0)


def test_max_pooling_sends_the_gradient_to_nan(rng):
    x = np.zeros((1, 1, 2, 2), np.float32)
    x[0, 0, 1, 0] = np.nan
    attrs = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "ceil_mode": False}

    made = F.max_pool_grad(np.ones((1, 1, 1, 1), np.float32), x, F.max_pool(x, **attrs), **attrs)

    assert made[0, 0].tolist() == [[0, 0], [1, 0]]


CONVOLUTIONS = {
    "many images": ((37, 3, 12, 11), (5, 3, 3, 3), {}),
    "padded": ((9, 8, 20, 31), (16, 8, 3, 3), {"padding": (1, 1)}),
    "rows cut": ((2, 64, 40, 40), (8, 64, 3, 3), {"padding": (1, 1)}),
    "rows cut, strided": ((2, 96, 61, 60), (8, 96, 3, 3), {"stride": (2, 2), "padding": (1, 1)}),
    "dilated": ((5, 6, 30, 33), (4, 6, 3, 2), {"dilation": (3, 2)}),
    "grouped": ((6, 8, 17, 19), (12, 2, 3, 3), {"groups": 4, "padding": (2, 0)}),
    "pointwise": ((5, 16, 30, 30), (9, 16, 1, 1), {}),
    "pointwise strided": ((5, 16, 30, 30), (9, 16, 1, 1), {"stride": (2, 2)}),
    "narrow": ((40, 4, 7, 3), (6, 4, 3, 3), {}),
    "one axis": ((6, 5, 300), (7, 5, 9), {"stride": (2,), "padding": (4,), "dilation": (1,)}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_convolution(rng, name, dtype):
    size, window, given = CONVOLUTIONS[name]
    rank = len(size) - 2
    attrs = {"stride": (1,) * rank, "padding": (0,) * rank, "dilation": (1,) * rank, "groups": 1, **given}
    x, weight = normal(rng, *size, dtype=dtype), normal(rng, *window, dtype=dtype)
    bias = normal(rng, window[0], dtype=dtype)
    loose = 2e-3 if dtype is np.float32 else 1e-10
    agree("conv", x, weight, **attrs, tolerance=loose)
    agree("convolution", x, weight, bias, **attrs, tolerance=loose)
    g = normal(rng, *F.conv(x, weight, **attrs).shape, dtype=dtype)
    agree("conv_input_grad", g, weight, sizes=size[2:], **attrs, tolerance=loose)
    agree("conv_weight_grad", x, g, kernel=window[2:], **attrs, tolerance=loose * 2)


@pytest.mark.parametrize(("m", "k", "n"), [(300, 200, 100), (8, 500, 900), (1, 3000, 1000), (50, 40, 30)])
def test_products_and_affine_maps(rng, m, k, n):
    x, weight, bias = normal(rng, m, k), normal(rng, n, k), normal(rng, n)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64)

    np.testing.assert_allclose(F.matmul(x, weight.T), expected, atol=2e-3)
    np.testing.assert_allclose(F.matmul(np.asfortranarray(x), weight.T.copy()), expected, atol=2e-3)
    np.testing.assert_allclose(F.linear(x, weight, bias), expected + bias, atol=2e-3)
    np.testing.assert_allclose(F.linear(x[None], weight, None), expected[None], atol=2e-3)


@pytest.mark.parametrize("batch", [(16,), (2, 9), (8, 4)])
def test_batches_of_products(rng, batch):
    x, y = normal(rng, *batch, 60, 70), normal(rng, *batch, 80, 70)

    np.testing.assert_allclose(F.matmul(x, np.swapaxes(y, -1, -2)), x @ np.swapaxes(y, -1, -2), atol=1e-4)


@pytest.mark.parametrize("count", [7, 1600, 3000, 1 << 14, (1 << 14) + 1, 1 << 16])
def test_relu_of_any_size_keeps_nan_and_infinity(rng, count):
    x = normal(rng, count)
    x[:3] = np.nan, np.inf, -np.inf

    agree("relu", x, tolerance=0)
    agree("relu", np.tile(x, (2, 1)).T, tolerance=0)


@pytest.mark.parametrize("sizes", [(1,), (1, 1), (1, 1, 1), (2, 1), (3, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_means_of_planes(rng, sizes, dtype):
    x = normal(rng, 2, 3, *(7 - i for i in range(len(sizes))), dtype=dtype)

    agree("adaptive_avg_pool", x, sizes=sizes, tolerance=2e-3 if dtype is np.float16 else 2e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["gelu", "silu", "mish"])
@pytest.mark.parametrize("count", [5, 1 << 14])
def test_activations_are_the_same_without_gradients(name, count, dtype):
    x = tenon.randn(count, dtype=getattr(tenon, dtype))
    x[:3] = tenon.tensor([float("nan"), float("inf"), -float("inf")])
    function = getattr(tenon.nn.functional, name)
    values = function(x.clone().requires_grad_()).detach()

    alone = [function(x)]
    with tenon.no_grad():
        alone.append(function(x.clone().requires_grad_()))

    for found in alone:
        tolerance = 1e-2 if dtype == "bfloat16" else 2e-6
        np.testing.assert_allclose(found.float().numpy(), values.float().numpy(), tolerance, tolerance)


def test_every_kernel_belongs_to_an_op():
    assert set(BACKEND.table) <= set(dir(ops))
    assert all(row.name and callable(row.kernel) for rows in BACKEND.table.rows.values() for row in rows)
