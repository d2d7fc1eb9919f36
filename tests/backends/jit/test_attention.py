"""Attention by generated code equals the composite: values, gradients, and the propagation of NaN and infinity."""

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.nn.functional import scaled_dot_product_attention as attend
from tenon_cpu.jit import attention as kernel
from tenon_cpu.jit.compiler import llvm

pytestmark = [pytest.mark.skipif(not llvm.available(), reason="there is no llvmlite"), pytest.mark.together]
INF, NAN = float("inf"), float("nan")


@pytest.fixture(params=["own vectors", "vectors of 8"])
def lanes(request, monkeypatch):
    """The machine's vectors, and narrower ones."""
    if request.param == "vectors of 8":
        monkeypatch.setattr(kernel, "_lanes", lambda: 8)


def arrays(lead, rows, keys, width, seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((*lead, n, width), np.float32) for n in (rows, keys, keys)]


def in_parts(patch):
    patch.setattr(kernel, "is_supported", lambda *arrays: False)


def run(given, *rest, **options):
    """Return whether attention was one op, its result and gradients."""
    tensors = [tenon.tensor(a, requires_grad=True) for a in given]
    out = attend(*tensors, *rest, **options)
    one = out.grad_fn.op.name == "attention"
    out.backward(tenon.cos(tenon.arange(out.numel()).reshape(out.shape).float()))
    return one, [out.detach().numpy(), *(t.grad.numpy() for t in tensors)]


def agree(given, *rest, **options):
    one, mine = run(given, *rest, **options)
    with pytest.MonkeyPatch.context() as patch:
        in_parts(patch)
        several, parts = run(given, *rest, **options)
    assert one and not several
    for a, b in zip(mine, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    return mine


SHAPES = [
    ((2, 3), 51, 77, 16),
    *(
        pytest.param(shape, marks=pytest.mark.slow)
        for shape in (
            ((2, 3), 64, 64, 32),
            ((5,), 77, 51, 48),
            ((1, 1), 9, 999, 64),
            ((1, 2), 999, 9, 256),
        )
    ),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_the_parts(shape, causal, lanes):
    agree(arrays(*shape), is_causal=causal)


@pytest.mark.parametrize("mask", [(60, 70), (2, 1, 1, 70), (2, 3, 60, 1), (1, 3, 60, 70)], ids=str)
def test_masks_of_every_shape_are_added(mask, lanes):
    numbers = np.random.default_rng(1).standard_normal(mask, np.float32)
    given = arrays((2, 3), 60, 70, 32)

    agree(given, tenon.tensor(numbers), scale=0.3)
    agree(given, tenon.tensor(numbers > -1))


@pytest.mark.parametrize("queries", [0, 3])
def test_without_keys_all_is_0(queries):
    query, key, value = (tenon.ones(1, 2, n, 4, requires_grad=True) for n in (queries, 0, 0))

    out = ops.attention(query, key, value, None, scale=0.5)
    out.sum().backward()

    assert out.shape == (1, 2, queries, 4) and not out.any()
    assert query.grad.shape == query.shape and not query.grad.any()


def test_a_query_that_may_look_nowhere_gets_0_and_gives_nothing(lanes):
    mask = np.ones((60, 70), bool)
    mask[7] = False

    out, dquery, *_ = agree(arrays((2, 3), 60, 70, 32), tenon.tensor(mask))

    assert not out[:, :, 7].any() and not dquery[:, :, 7].any()


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_nan_and_infinity_reach_the_same_places(which, bad, causal):
    given = arrays((1, 2), 70, 70, 16)
    given[which][0, 1, 40, 3] = bad

    agree(given, is_causal=causal)


def test_infinite_masks_and_scores_that_overflow_are_those_of_the_parts():
    mask = np.zeros((70, 70), np.float32)
    mask[3, 4], mask[5, 6] = INF, NAN
    agree(arrays((1, 2), 70, 70, 16), tenon.tensor(mask))

    given = arrays((1, 2), 70, 70, 16)
    given[0][0, 0, 9] = 1e25
    given[1][0, 0] = np.where(given[1][0, 0] > 0, 1e25, -1e25)
    agree(given)


def test_heads_are_read_out_of_wider_rows():
    wide = tenon.tensor(arrays((), 1, 2 * 60, 96)[1], requires_grad=True)
    q, k, v = (p.view(2, 60, 2, 16).transpose(1, 2) for p in wide.view(2, 60, 96).split(32, dim=2))
    strided = attend(q, k, v, is_causal=True)
    together = attend(q.contiguous(), k.contiguous(), v.contiguous(), is_causal=True)

    assert strided.grad_fn.op.name == "attention"
    assert strided.equal(together)
    strided.sum().backward()
    assert np.isfinite(wide.grad.numpy()).all()


def test_every_other_layout_is_copied_first():
    given = arrays((2, 3), 60, 60, 16)
    turned = [tenon.tensor(np.ascontiguousarray(a.swapaxes(-1, -2))).mT for a in given]

    assert attend(*turned).equal(attend(*map(tenon.tensor, given)))


def test_second_derivatives_go_through_the_parts():
    given = arrays((1, 2), 66, 66, 16)

    def twice():
        tensors = [tenon.tensor(a, requires_grad=True) for a in given]
        out = attend(*tensors, is_causal=True)
        first = tenon.autograd.grad(out.square().sum(), tensors, create_graph=True)
        return tenon.autograd.grad(sum(g.square().sum() for g in first), tensors)

    mine = twice()
    with pytest.MonkeyPatch.context() as patch:
        in_parts(patch)
        parts = twice()
    for a, b in zip(mine, parts, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-3, atol=2e-2)


def test_threads_change_no_bit():
    given, before = arrays((4, 3), 100, 100, 32), tenon.get_num_threads()
    try:
        tenon.set_num_threads(1)
        _, alone = run(given, is_causal=True)
        tenon.set_num_threads(2)
        _, both = run(given, is_causal=True)
    finally:
        tenon.set_num_threads(before)

    assert all(np.array_equal(a, b) for a, b in zip(alone, both, strict=True))


def test_unsupported_cases_use_the_other_kernels():
    q, k, v = map(tenon.tensor, arrays((2, 4), 64, 64, 16))
    learned = tenon.zeros(64, 64, requires_grad=True)

    attend(q, k, v, learned).sum().backward()
    assert learned.grad is not None
    for others, options in [
        ((q.double(), k.double(), v.double()), {}),
        ((q[..., :13], k[..., :13], v[..., :13]), {}),
        ((q[:, :, :3], k, v), {}),
        ((q, k[:, :, :0], v[:, :, :0]), {}),
        ((q, k[:, :2], v[:, :2]), {"enable_gqa": True}),
        ((q, k[:1], v[:1]), {}),
    ]:
        wide = [t.double() for t in others]
        np.testing.assert_allclose(
            attend(*others, **options).numpy(), attend(*wide, **options).numpy(), atol=1e-5
        )


@pytest.mark.parametrize("bad", [None, NAN])
def test_a_compiled_step_computes_the_same(bad):
    given = [tenon.tensor(a) for a in arrays((2, 3), 70, 70, 16)]
    weight = tenon.ones(16, requires_grad=True)

    def step(q, k, v):
        weight.grad = None
        out = attend(q * weight, k * weight, v, is_causal=True)
        out.square().mean().backward()
        return out.detach().clone(), weight.grad.clone()

    compiled = tenon.compile(step)
    for _ in range(4):
        compiled(*given)
    if bad is not None:
        given[1][0, 0, 5, 5] = bad
    for mine, eager in zip(compiled(*given), step(*given), strict=True):
        np.testing.assert_allclose(mine.numpy(), eager.numpy(), rtol=1e-4, atol=1e-6)
