"""Compiled norms of matrices and channels equal the composites in float64, for all memory layouts."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon_cpu.jit.compiler import compile as jit

BACKEND = tenon.zeros(1)._backend
pytestmark = [
    pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}"),
    pytest.mark.together,
]
#: One column; more columns than a block of them and more rows than a block of sums; one row.
MATRICES = [(9001, 1), (301, 700), (1, 9001), (64, 256)]
IMAGES = [(3, 5, 613), (1, 7, 37, 43), (200, 1, 50), (16, 600, 2), (100, 90)]
ALL = (True, True, True)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def agree(name, *args, tolerance=1e-4, **attrs):
    """Compare the kernel's results with the composite in float64, also for strided and float64 arrays."""
    kernel, op = BACKEND.kernels[getattr(ops, name)], getattr(ops, name)
    wide = [a if a is None else a.astype(np.float64) for a in args]
    parts = getattr(op, "raw_forward", None) or op.decompose
    expected = parts(BACKEND.raw, *wide, **attrs)
    stepped = [a if a is None else np.repeat(a, 2, -1)[..., ::2] for a in args]
    for given, dtype in ((args, np.float32), (stepped, np.float32), (wide, np.float64)):
        made = kernel(*given, **attrs)
        several = isinstance(expected, tuple)
        for m, e in zip(made, expected, strict=True) if several else [(made, expected)]:
            assert m.dtype == dtype and m.shape == e.shape
            np.testing.assert_allclose(m, e, rtol=tolerance, atol=tolerance)
    return kernel(*args, **attrs)


@pytest.mark.parametrize("shape", MATRICES)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_of_a_matrix_and_its_gradient(rng, shape, affine):
    x, g = normal(rng, *shape) + 3, normal(rng, *shape)
    weight, bias = (normal(rng, shape[1]), normal(rng, shape[1])) if affine else (None, None)

    mean, deviation = agree("batch_norm", x, weight, bias, eps=0.01)[3:]

    agree("batch_norm_grad", g, x, weight, mean, deviation, needs=ALL, tolerance=1e-3)


def test_a_column_without_spread_and_one_with_nan_leave_the_others_alone(rng):
    x = normal(rng, 90, 200)
    x[:, 3], x[5, 7] = 2, np.nan

    out = agree("batch_norm", x, None, None, eps=1e-5)[0]

    assert not out[:, 3].any() and np.isnan(out[:, 7]).all() and np.isfinite(np.delete(out, 7, 1)).all()


@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True)])
def test_a_factor_and_a_summand_of_each_channel(rng, shape, given):
    x, g = normal(rng, *shape), normal(rng, *shape)
    weight, bias = (normal(rng, shape[1]) if there else None for there in given)

    agree("channel_affine", x, weight, bias)

    agree("channel_affine_grad", g, x, weight, needs=ALL, tolerance=1e-3)


@pytest.mark.parametrize("shape", [(97, 133), (1, 9001), (9001, 1), (3, 5, 7, 91)])
def test_layer_norm_without_weight_and_bias(rng, shape):
    x, g = normal(rng, *shape), normal(rng, *shape)

    _, mean, deviation = agree("layer_norm", x, None, None, rank=1)

    agree("layer_norm_grad", g, x, None, mean, deviation, rank=1, needs=(True, False, False))


@pytest.mark.oracle
@pytest.mark.parametrize("affine", [True, False])
def test_group_and_instance_norm_agree_with_torch(rng, affine):
    torch = pytest.importorskip("torch")
    x, w, b = normal(rng, 4, 6, 21, 23), normal(rng, 6), normal(rng, 6)
    calls = {
        "group": lambda nn, x, w, b: nn.functional.group_norm(x, 3, w, b),
        "instance": lambda nn, x, w, b: nn.functional.instance_norm(x, None, None, w, b),
    }

    for call in calls.values():
        found = []
        for lib in (tenon, torch):
            leaves = [lib.tensor(a).requires_grad_() for a in (x, w, b)]
            made = call(lib.nn, *(leaves if affine else (leaves[0], None, None)))
            wanted = leaves if affine else leaves[:1]
            found.append([made, *lib.autograd.grad((made**3).sum(), wanted)])
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(
                ours.detach().numpy(),
                theirs.detach().numpy(),
                rtol=1e-3,
                atol=2e-3 * theirs.abs().max().item(),
            )


@pytest.mark.slow
def test_layer_norm_of_very_long_rows_keeps_its_digits(rng):
    x, g = normal(rng, 1, 1 << 19) + 8, normal(rng, 1, 1 << 19) + 8

    mean, deviation = agree("layer_norm", x, None, None, rank=1, tolerance=4e-6)[1:]

    agree("layer_norm_grad", g, x, None, mean, deviation, rank=1, needs=ALL, tolerance=4e-6)
    agree("layer_norm", x[:, : 1 << 17], g[0, : 1 << 17], x[0, : 1 << 17], rank=1, tolerance=1e-5)
    made = mean[:, :1], deviation[:, :1]
    agree("layer_norm_grad", g[:, : 1 << 17], x[:, : 1 << 17], g[0, : 1 << 17], *made, rank=1, needs=ALL)
