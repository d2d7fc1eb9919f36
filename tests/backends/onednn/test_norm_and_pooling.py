"""Eager batch norm and overlapping max pooling with oneDNN, against the reference and against torch."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
import tenon.ops  # fills the table of ops
from tenon.engine.op import table
from tenon.kernels.backend import Backend, backend_named
from tenon_cpu.onednn import norm, pooling
from tenon_cpu.onednn.runtime import available

pytestmark = [pytest.mark.skipif(not available(), reason="oneDNN is not installed"), pytest.mark.together]


class Reference(Backend):
    """The reference forwards over NumPy."""

    name, xp, array_type = "reference", np, np.ndarray


REFERENCE = Reference()
AFFINE = [(True, True), (True, False), (False, True), (False, False)]


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def reference(name, *ins, **attrs):
    return REFERENCE.kernels[table[name]](*ins, **attrs)


def kernel(name):
    return backend_named("cpu").kernels[table[name]]


def assert_close(made, wanted, tolerance=1e-5):
    assert made.shape == wanted.shape
    assert made.dtype == wanted.dtype
    top = np.nanmax(np.where(np.isfinite(wanted), abs(wanted), 0), initial=1.0)
    np.testing.assert_allclose(made, wanted, rtol=tolerance, atol=tolerance * top)


def taken(cache, call):
    """Return the result of ``call``, and whether ``cache`` was used."""
    before = cache.counts()
    made = call()
    after = cache.counts()
    return made, after.hits + after.misses > before.hits + before.misses


@pytest.mark.parametrize("affine", AFFINE, ids=str)
@pytest.mark.parametrize("shape", [(4, 32, 9, 8), (2, 16, 150), (2, 16, 6, 5, 5)], ids=str)
def test_batch_norm_and_its_gradients_are_the_references(shape, affine):
    x, g = normal(*shape) * 3 + 5, normal(*shape, seed=1)
    weight, bias = (normal(shape[1], seed=i) if given else None for i, given in enumerate(affine))
    wanted = reference("batch_norm", x, weight, bias, eps=1e-3)
    needs = (True, *affine)

    made, used = taken(norm._cache, lambda: kernel("batch_norm")(x, weight, bias, eps=1e-3))
    grads = kernel("batch_norm_grad")(g, x, weight, *wanted[3:], needs=needs)

    assert used
    for mine, theirs in zip(made, wanted, strict=True):
        assert_close(mine, theirs)
    expected = reference("batch_norm_grad", g, x, weight, *wanted[3:], needs=needs)
    for mine, theirs, need in zip(grads, expected, needs, strict=True):
        if need:
            assert_close(mine, theirs, 1e-4)


@pytest.mark.parametrize(
    "x",
    [normal(4, 32, 9, 8).astype(np.float64), normal(4, 17, 9, 8), normal(64, 64), normal(1, 16, 2, 2)],
    ids=["double", "17 channels", "no spatial axis", "small"],
)
def test_what_does_not_fit_is_left_to_the_reference(x):
    weight, bias = np.ones(x.shape[1], x.dtype), np.zeros(x.shape[1], x.dtype)

    made, used = taken(norm._cache, lambda: kernel("batch_norm")(x, weight, bias))

    assert not used
    assert_close(made[0], reference("batch_norm", x, weight, bias)[0])


def test_batch_norm_takes_arrays_in_any_order_of_memory():
    x = np.ascontiguousarray(normal(4, 32, 9, 8).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    g = np.broadcast_to(np.float32(0.25), x.shape)
    weight, bias = normal(32), normal(32, seed=1)
    wanted = reference("batch_norm", x, weight, bias)

    made = kernel("batch_norm")(x, weight, bias)
    grads = kernel("batch_norm_grad")(g, x, weight, *wanted[3:], needs=(True,) * 3)

    assert_close(made[0], wanted[0])
    for mine, theirs in zip(
        grads, reference("batch_norm_grad", g, x, weight, *wanted[3:], needs=(True,) * 3), strict=True
    ):
        assert_close(mine, theirs, 1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_stays_in_its_channel(value):
    x, weight, bias = normal(4, 32, 9, 8), normal(32), normal(32, seed=1)
    x[1, 7, 2, 2] = value

    made = kernel("batch_norm")(x, weight, bias)[0]

    assert np.isnan(made[:, 7]).all()
    assert np.isfinite(np.delete(made, 7, axis=1)).all()


@pytest.mark.parametrize("affine", AFFINE, ids=str)
def test_inference_uses_the_given_statistics(affine):
    x, mean, variance = normal(5, 32, 9, 8), normal(32), abs(normal(32, seed=1)) + 0.1
    weight, bias = (normal(32, seed=i) if given else None for i, given in enumerate(affine))

    made = kernel("batch_norm_inference")(x, weight, bias, mean, variance, eps=1e-3)

    assert_close(made, reference("batch_norm_inference", x, weight, bias, mean, variance, eps=1e-3))


POOLS = [(3, 2, 1, False), (3, 2, 1, True), (3, 1, 1, False), (2, 1, 0, False), (5, 3, 2, True)]


def attributes(case, rank=2):
    kernel, stride, padding, ceil_mode = case
    return {
        "kernel": (kernel,) * rank,
        "stride": (stride,) * rank,
        "padding": (padding,) * rank,
        "dilation": (1,) * rank,
        "ceil_mode": ceil_mode,
    }


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("value", [None, np.nan, np.inf, -np.inf, "ties"], ids=str)
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_maxima_and_their_gradients_are_the_references(case, value, rank):
    x, attrs = normal(2, 5, *(9, 8, 7)[:rank]), attributes(case, rank)
    if value == "ties":
        x = np.round(x)
    elif value is not None:
        x[0, :3, :6] = value
    wanted = reference("max_pool", x, **attrs)
    g = normal(*wanted.shape, seed=1)

    made, used = taken(pooling._cache, lambda: kernel("max_pool")(x, **attrs))
    gradient = kernel("max_pool_grad")(g, x, wanted, **attrs)

    assert used == (rank > 1)  # lines are pooled by loops of our own
    np.testing.assert_array_equal(made, wanted)
    assert_close(gradient, reference("max_pool_grad", g, x, wanted, **attrs))


def test_maxima_of_doubles_views_and_empty_batches_are_the_references():
    attrs = attributes(POOLS[0])
    for x in (
        normal(2, 5, 9, 8).astype(np.float64),
        normal(2, 5, 9, 16)[..., ::2],
        np.empty((0, 5, 9, 8), np.float32),
    ):
        wanted = reference("max_pool", x, **attrs)

        np.testing.assert_array_equal(kernel("max_pool")(x, **attrs), wanted)
        np.testing.assert_array_equal(
            kernel("max_pool_grad")(wanted, x, wanted, **attrs),
            reference("max_pool_grad", wanted, x, wanted, **attrs),
        )


def test_nothing_holds_an_array_after_the_call():
    import sys

    x, attrs = normal(2, 5, 9, 8), attributes(POOLS[0])
    out = kernel("max_pool")(x, **attrs)
    kernel("max_pool_grad")(out, x, out, **attrs)

    fresh = np.empty(2)
    assert sys.getrefcount(x) == sys.getrefcount(out) == sys.getrefcount(fresh)


@pytest.mark.oracle
def test_a_block_of_a_network_trains_as_in_torch():
    torch = pytest.importorskip("torch")
    x, weight = normal(4, 16, 14, 14), normal(32, 16, 3, 3) / 12

    def step(lib, module):
        image = lib.tensor(x.tolist(), requires_grad=True)
        kernel = lib.tensor(weight.tolist(), requires_grad=True)
        out = lib.nn.functional.conv2d(image, kernel, padding=1)
        out = lib.nn.functional.max_pool2d(lib.relu(module(out)), 3, stride=2, padding=1)
        (out * out).sum().backward()
        return [
            v.detach().numpy()
            for v in (
                out,
                image.grad,
                kernel.grad,
                module.weight.grad,
                module.bias.grad,
                module.running_mean,
                module.running_var,
            )
        ]

    mine, theirs = (step(lib, lib.nn.BatchNorm2d(32)) for lib in (tenon, torch))

    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * max(1.0, abs(b).max()))
