"""``scaled_dot_product_attention``: torch's values and gradients, and masks that are kept between calls."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon.nn import functional as F


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
