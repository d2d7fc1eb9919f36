"""Clipping of gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import GradError


def parameters(*grads):
    made = []
    for g in grads:
        p = nn.Parameter(tenon.zeros(0 if g is None else len(g)))
        p.grad = None if g is None else tenon.tensor(g)
        made.append(p)
    return made


def test_norm_is_that_of_all_gradients_as_one_vector_and_is_returned():
    ps = parameters([3.0, 0.0], None, [4.0])

    total = nn.utils.clip_grad_norm_(ps, 1.0)

    assert total.item() == 5.0
    np.testing.assert_allclose(ps[0].grad.numpy(), [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(ps[2].grad.numpy(), [0.8], rtol=1e-6)


def test_small_gradients_are_left_alone():
    ps = parameters([0.3], [0.4])

    nn.utils.clip_grad_norm_(ps, 1.0)

    assert [p.grad.item() for p in ps] == [np.float32(0.3), np.float32(0.4)]


def test_gradients_are_changed_in_place_and_a_single_tensor_will_do():
    (p,) = parameters([30.0, -40.0])
    grad = p.grad

    nn.utils.clip_grad_norm_(p, 5)
    nn.utils.clip_grad_value_(p, 3.5)

    assert p.grad is grad
    np.testing.assert_allclose(grad.numpy(), [3.0, -3.5], rtol=1e-6)


def test_non_finite_norm_is_an_error_only_on_request():
    ps = parameters([1.0, math.nan])

    with pytest.raises(GradError, match="non-finite"):
        nn.utils.clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)
    assert ps[0].grad[0].item() == 1.0
    assert math.isnan(nn.utils.clip_grad_norm_(ps, 1.0).item())
    assert isinstance(GradError(), RuntimeError)


def test_nothing_to_clip_gives_zero_and_an_exhausted_generator_a_warning():
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0
    assert nn.utils.clip_grad_norm_(parameters(None), 1.0).item() == 0
    with pytest.warns(UserWarning, match="empty generator"):
        nn.utils.clip_grad_norm_((p for p in ()), 1.0)
    with pytest.warns(FutureWarning, match="deprecated"):
        nn.utils.clip_grad_norm([], 1.0)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("order", "dtype"),
    [
        *((order, dtype) for order in (2.0, 1.0, 3.5, math.inf, 0.0) for dtype in ("float32", "float64")),
        (2.0, "bfloat16"),
        (1.0, "bfloat16"),
        (2.0, "float16"),
    ],
)
def test_norm_and_clipped_gradients_are_torchs(order, dtype):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 2), (4,), (), (0,))]
    if order == math.inf:
        values.pop()  # an empty maximum is an error in both
    ours = [nn.Parameter(tenon.tensor(v).to(getattr(tenon, dtype))) for v in values]
    theirs = [torch.nn.Parameter(torch.tensor(v).to(getattr(torch, dtype))) for v in values]
    for p, q in zip(ours, theirs, strict=True):
        p.grad, q.grad = p.detach().clone(), q.detach().clone()

    a, b = nn.utils.clip_grad_norm_(ours, 0.5, order), torch.nn.utils.clip_grad_norm_(theirs, 0.5, order)

    tolerance = 1e-2 if dtype.endswith("float16") else 1e-6
    assert str(a.dtype) == str(b.dtype)
    np.testing.assert_allclose(a.item(), b.item(), rtol=tolerance)
    for p, q in zip(ours, theirs, strict=True):
        assert str(p.grad.dtype) == str(q.grad.dtype)
        np.testing.assert_allclose(p.grad.float().numpy(), q.grad.float().numpy(), rtol=tolerance, atol=1e-6)


@pytest.mark.oracle
def test_names_and_signatures_are_torchs():
    torch = pytest.importorskip("torch")
    import inspect

    for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"):
        theirs = inspect.signature(getattr(torch.nn.utils, name)).parameters
        ours = inspect.signature(getattr(nn.utils, name)).parameters
        assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]
