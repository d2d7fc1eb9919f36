"""Losses over classes by compiled loops equal the reference, with weights, ignored targets and infinities."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.errors import IndexRangeError
from tenon_cpu.jit.compiler import compile as jit

BACKEND = tenon.zeros(1)._backend
pytestmark = pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}")
SHAPES = [(900, 12), (3, 7, 30, 20), (2, 70, 90)]


@pytest.fixture
def rng():
    return np.random.default_rng(6)


def drawn(rng, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    target = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    target.reshape(-1)[::7] = -100
    return x, target


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_and_gradients_are_those_of_float64(rng, shape, reduction, weighted):
    x, target = drawn(rng, shape)
    weight = rng.random(shape[1]).astype(np.float32) if weighted else None
    attrs = {"reduction": reduction}
    wide = [x.astype(np.float64), target, None if weight is None else weight.astype(np.float64)]

    picked = BACKEND.kernels[ops.nll_loss](x, target, weight, **attrs)
    loss, total = BACKEND.kernels[ops.cross_entropy](x, target, weight, **attrs)
    g = np.asarray(rng.standard_normal(np.shape(loss)), np.float32)
    slopes = BACKEND.kernels[ops.cross_entropy_grad](g, x, total, target, weight, **attrs)

    exact, sums = ops.cross_entropy.raw_forward(BACKEND.raw, *wide, **attrs)
    np.testing.assert_allclose(picked, ops.nll_loss.forward(np, *wide, **attrs), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(loss, exact, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(total, sums, rtol=1e-5, atol=1e-6)
    made = ops.cross_entropy_grad.decompose(
        BACKEND.raw, g.astype(np.float64), wide[0], sums, target, wide[2], **attrs
    )
    np.testing.assert_allclose(slopes, made, rtol=1e-4, atol=1e-6)


def test_infinite_scores_and_nan_of_images_give_what_log_softmax_gives(rng):
    x, target = drawn(rng, (2, 5, 60, 20))
    x[0, 1, 0, 0], x[0, 2, 0, 1], x[0, :, 0, 2], x[0, 3, 0, 3] = np.inf, np.nan, -np.inf, -np.inf
    target[0, 0, :4] = 1
    with np.errstate(all="ignore"):
        loss, total = BACKEND.kernels[ops.cross_entropy](x, target, None, reduction="none")
        wanted, sums = ops.cross_entropy.raw_forward(
            BACKEND.raw, x.astype(np.float64), target, None, reduction="none"
        )

    np.testing.assert_allclose(loss, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(total, sums, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_targets_outside_the_classes_are_named(rng, name):
    x, target = drawn(rng, (2, 70, 90))
    target[1, 3] = 70

    with pytest.raises(IndexRangeError, match="Target 70 is out of bounds"):
        BACKEND.kernels[getattr(ops, name)](x, target, None)


def test_mean_of_ignored_targets_is_nan(rng):
    x, target = drawn(rng, (2, 70, 90))
    target[...] = -100

    assert np.isnan(BACKEND.kernels[ops.nll_loss](x, target, None))
    assert not np.any(BACKEND.kernels[ops.nll_loss](np.full_like(x, np.nan), target, None, reduction="none"))


@pytest.mark.parametrize("shape", [(16, 32, 8, 8), (64, 3, 50), (2, 3, 12, 12, 12)])
def test_pooling_to_one_place_is_a_mean_and_its_gradient_a_share(rng, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    sizes = (1,) * (len(shape) - 2)

    made = BACKEND.kernels[ops.adaptive_avg_pool](x, sizes=sizes)
    spread = BACKEND.kernels[ops.adaptive_avg_pool_grad](made, shape=shape)

    np.testing.assert_allclose(made, x.mean(tuple(range(2, x.ndim)), keepdims=True), rtol=1e-4, atol=1e-6)
    share = made / np.float32(np.prod(shape[2:]))
    np.testing.assert_allclose(spread, np.broadcast_to(share, shape), rtol=1e-6)


def test_windows_that_do_not_overlap_are_put_back_in_place(rng):
    x = rng.standard_normal((3, 4, 5, 2)).astype(np.float32)
    made = ops.fold_axis.forward(np, x, shape=(3, 12, 5), axis=1, step=3)

    np.testing.assert_array_equal(ops.unfold_axis.forward(np, made, axis=1, size=2, step=3), x)
    assert not made[:, 2::3].any()
    assert not made[:, 11:].any()
