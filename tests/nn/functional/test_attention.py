"""``scaled_dot_product_attention``: torch's values and gradients, and masks that are kept between calls."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon.nn import functional as F

pytestmark = pytest.mark.together


@pytest.mark.oracle
def test_attention_agrees(agree, rng):
    q, k, v = (rng.standard_normal((2, 3, 5, 4)) for _ in range(3))

    agree(lambda t, F, q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v)
    agree(lambda t, F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), q, k, v)
    agree(
        lambda t, F, q, k, v: F.scaled_dot_product_attention(q, k[..., :3, :], v[..., :3, :], is_causal=True),
        q,
        k,
        v,
    )


def test_a_causal_mask_made_without_gradients_serves_training_and_compiled_calls():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = (tenon.randn(2, 9, 4) for _ in range(3))
    with tenon.inference_mode():
        expected = attend(q, k, v).numpy()
    q.requires_grad_()
    compiled = tenon.compile(attend, fullgraph=True)

    found = [attend(q, k, v), *(compiled(q, k, v) for _ in range(4))]
    found[0].sum().backward()

    for each in found:
        np.testing.assert_allclose(each.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert compiled.programs
    np.testing.assert_allclose(expected[:, 0], v[:, 0].numpy(), rtol=1e-6)


def test_a_mask_too_large_to_keep_is_made_for_the_call():
    q, k, v = tenon.ones(1040, 1), tenon.ones(1040, 1), tenon.arange(1040.0)[:, None]

    found = F.scaled_dot_product_attention(q, k, v, is_causal=True)

    np.testing.assert_allclose(found[:, 0].numpy(), np.arange(1040) / 2, rtol=1e-4)


MASKS = {
    "rows": (5, 6),
    "one row": (1, 6),
    "padding": (2, 1, 1, 6),
    "column": (5, 1),
    "heads": (3, 5, 6),
    "whole": (2, 3, 5, 6),
}


@pytest.mark.oracle
@pytest.mark.parametrize("boolean", [True, False])
@pytest.mark.parametrize("shape", MASKS.values(), ids=MASKS)
def test_masks_of_every_broadcast_shape_agree(agree, rng, shape, boolean):
    q, k, v = (rng.standard_normal((2, 3, n, 4)) for n in (5, 6, 6))
    mask = rng.random(shape) > 0.4 if boolean else rng.standard_normal(shape)

    agree(lambda t, F, q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.7), q, k, v, mask)


@pytest.mark.oracle
def test_second_gradients_agree(agree, rng):
    q, k, v = (rng.standard_normal((2, 5, 4)) for _ in range(3))
    mask = rng.standard_normal((5, 5))

    agree(lambda t, F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v, order=2,
          tolerance=1e-8)  # fmt: skip
    agree(lambda t, F, *x: F.scaled_dot_product_attention(*x), q, k, v, mask, order=2, tolerance=1e-8)


@pytest.mark.oracle
@pytest.mark.parametrize("additive", [True, False])
def test_queries_without_a_key_get_zero_and_no_gradient(agree, rng, additive):
    q, k, v = (rng.standard_normal((2, 5, 4)) for _ in range(3))
    mask = rng.random((5, 5)) > 0.3
    mask[2] = False

    def attend(t, F, q, k, v, mask):
        given = t.zeros(5, 5, dtype=q.dtype).masked_fill(~mask, float("-inf")) if additive else mask
        return F.scaled_dot_product_attention(q, k, v, given)

    agree(attend, q, k, v, mask)


@pytest.mark.oracle
@pytest.mark.parametrize("heads", [(6, 2, 2), (6, 2, 3), (4, 1, 4), (2, 2, 2)])
def test_grouped_heads_agree(agree, rng, heads):
    q, k, v = (rng.standard_normal((2, h, n, 4)) for h, n in zip(heads, (5, 6, 6), strict=True))
    mask = rng.random((heads[0], 5, 6)) > 0.3

    agree(lambda t, F, q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k, v)
    agree(lambda t, F, *x: F.scaled_dot_product_attention(*x, enable_gqa=True), q, k, v, mask)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 5, 0), (2, 3, 6, 0), (2, 3, 6, 4)),
        ((2, 3, 5, 4), (2, 3, 0, 4), (2, 3, 0, 4)),
        ((2, 3, 0, 4), (2, 3, 6, 4), (2, 3, 6, 4)),
        ((0, 3, 5, 4), (0, 3, 6, 4), (0, 3, 6, 4)),
        ((5, 4), (6, 4), (6, 7)),
        ((2, 3, 5, 4), (3, 6, 4), (3, 6, 7)),
        ((2, 3, 5, 4), (2, 1, 6, 4), (2, 1, 6, 7)),
    ],
    ids=str,
)
def test_empty_and_broadcast_arguments_agree(agree, rng, shapes):
    arrays = [rng.standard_normal(s) for s in shapes]

    agree(lambda t, F, q, k, v: F.scaled_dot_product_attention(q, k, v), *arrays)


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "limit"), [("float16", 1e-3), ("bfloat16", 8e-3)])
def test_short_floats_are_rounded_once(name, limit, rng):
    torch = pytest.importorskip("torch")
    arrays = [(3 * rng.standard_normal((2, 3, 9, 8))).astype(np.float32) for _ in range(3)]
    found = []
    for lib in (tenon, torch):
        q, k, v = (lib.from_numpy(a).to(getattr(lib, name)) for a in arrays)
        out = lib.nn.functional.scaled_dot_product_attention(q, k, v, lib.zeros(9, 9), scale=2.0)
        assert str(out.dtype) == f"torch.{name}"
        found.append(out.float().numpy())

    np.testing.assert_allclose(*found, rtol=limit, atol=limit)


@pytest.mark.oracle
def test_dropout_draws_as_torch_does_on_the_cpu(rng):
    torch = pytest.importorskip("torch")
    arrays = [rng.standard_normal((2, 3, 9, 8)).astype(np.float32) for _ in range(3)]
    found = []
    for lib in (tenon, torch):
        lib.manual_seed(7)
        tensors = [lib.from_numpy(a) for a in arrays]
        found.append(lib.nn.functional.scaled_dot_product_attention(*tensors, dropout_p=0.3).numpy())

    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def _attention(*shapes, **attrs):
    def call(t, F):
        return F.scaled_dot_product_attention(*(t.zeros(*s) if s else None for s in shapes), **attrs)

    return call


REFUSED = {
    "one axis": _attention((4,), (4,), (4,)),
    "mask and causal": _attention((5, 4), (6, 4), (6, 4), (5, 6), is_causal=True),
    "mask that does not fit": _attention((5, 4), (6, 4), (6, 4), (4, 6)),
    "batches that do not fit": _attention((2, 5, 4), (3, 6, 4), (3, 6, 4)),
    "heads that do not divide": _attention((1, 5, 5, 4), (1, 2, 6, 4), (1, 2, 6, 4), enable_gqa=True),
    "dtypes that differ": lambda t, F: F.scaled_dot_product_attention(
        t.zeros(5, 4), t.zeros(6, 4).double(), t.zeros(6, 4)
    ),
    "integer mask": lambda t, F: F.scaled_dot_product_attention(
        *[t.zeros(5, 4)] * 3, t.zeros(5, 5, dtype=t.int64)
    ),
    "probability": _attention((5, 4), (6, 4), (6, 4), dropout_p=1.5),
    "positional scale": lambda t, F: F.scaled_dot_product_attention(
        *[t.zeros(5, 4)] * 3, None, 0.0, False, 1.0
    ),
}


@pytest.mark.oracle
@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses_what_torch_refuses(what):
    torch = pytest.importorskip("torch")
    with pytest.raises(Exception) as expected:
        REFUSED[what](torch, torch.nn.functional)

    with pytest.raises(type(expected.value)):
        REFUSED[what](tenon, F)


def test_keys_and_values_that_differ_in_number_are_refused():
    with pytest.raises(tenon.errors.ShapeError, match="keys and values the same number"):
        F.scaled_dot_product_attention(tenon.zeros(5, 4), tenon.zeros(6, 4), tenon.zeros(5, 4))
