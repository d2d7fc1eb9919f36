"""Affine maps, embedding and normalisation agree with torch."""

from __future__ import annotations

import numpy as np
import pytest

import tenon

pytestmark = [pytest.mark.oracle, pytest.mark.together]


@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 3, 6), (0, 6), (2, 0, 6), (2, 1, 3, 6)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_agrees(agree, rng, shape, biased, dtype):
    x, w, b = (rng.standard_normal(s).astype(dtype) for s in (shape, (3, 6), (3,)))

    agree(lambda t, F, x, w, b: F.linear(x, w, b if biased else None), x, w, b, order=2)


def test_linear_of_strided_and_expanded_inputs_agrees(agree, rng):
    x, w, b = (rng.standard_normal(s) for s in ((6, 4), (6, 3), (1,)))

    agree(lambda t, F, x, w, b: F.linear(x.t(), w.t(), b.expand(3)), x, w, b, order=2)


def test_linear_with_a_vector_as_weight_agrees(agree, rng):
    agree(lambda t, F, x, w: F.linear(x, w), rng.standard_normal((4, 6)), rng.standard_normal(6))


def test_bilinear_agrees(agree, rng):
    a, b, w, c = (rng.standard_normal(s) for s in ((5, 2), (5, 3), (4, 2, 3), (4,)))

    agree(lambda t, F, a, b, w, c: F.bilinear(a, b, w, c), a, b, w, c, order=2)


def test_addmm_agrees(agree, rng):
    x, a, b = (rng.standard_normal(s) for s in ((3,), (4, 2), (2, 3)))

    agree(lambda t, F, x, a, b: t.addmm(x, a, b, beta=0.5, alpha=2), x, a, b, order=2)


def test_grad_fn_prints_as_in_torch():
    torch = pytest.importorskip("torch")
    names = []
    for t in (tenon, torch):
        biased, plain = t.nn.Linear(3, 2), t.nn.Linear(3, 2, bias=False)
        inputs = [t.ones(3), t.ones(2, 3), t.ones(2, 2, 3)]
        names.append([layer(x).grad_fn.name() for layer in (biased, plain) for x in inputs])

    assert names[0] == names[1]


@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (0,)])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_embedding_agrees(agree, rng, shape, dtype):
    indices = np.asarray(rng.integers(0, 7, shape), dtype)

    agree(lambda t, F, w, i: F.embedding(i, w), rng.standard_normal((7, 3)), indices)


@pytest.mark.parametrize("options", [{"padding_idx": 2}, {"padding_idx": -1}, {"scale_grad_by_freq": True}])
def test_embedding_options_agree(agree, rng, options):
    indices = np.array([[2, 6, 2], [0, 1, 6]])

    agree(lambda t, F, w, i: F.embedding(i, w, **options), rng.standard_normal((7, 3)), indices)


def test_embedding_has_a_second_order(agree, rng):
    agree(
        lambda t, F, w, i: F.embedding(i, w, padding_idx=1) ** 3,
        rng.standard_normal((4, 2)),
        np.array([1, 2, 2]),
        order=2,
    )


@pytest.mark.parametrize("norm_type", [2.0, 1.0])
def test_embedding_with_max_norm_shrinks_the_rows_used(rng, norm_type):
    torch = pytest.importorskip("torch")
    host = rng.standard_normal((5, 3)).astype(np.float32) * 2
    ours, theirs = tenon.from_numpy(host.copy()), torch.from_numpy(host.copy())

    a = tenon.nn.functional.embedding(tenon.tensor([1, 3, 1]), ours, max_norm=1.0, norm_type=norm_type)
    b = torch.nn.functional.embedding(torch.tensor([1, 3, 1]), theirs, max_norm=1.0, norm_type=norm_type)

    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


def test_one_hot_agrees(agree):
    agree(lambda t, F, x: (F.one_hot(x), F.one_hot(x, 5)), np.array([[0, 2], [1, 1]]), order=0)


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (0, 6), (3, 2, 6)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_layer_norm_agrees(agree, rng, shape, affine, dtype):
    x, w, b = (rng.standard_normal(s).astype(dtype) for s in (shape, (6,), (6,)))

    agree(lambda t, F, x, w, b: F.layer_norm(x, (6,), *((w, b) if affine else ())), x, w, b, tolerance=1e-4)


def test_layer_norm_has_a_second_order_and_takes_several_axes(agree, rng):
    x, w, b = (rng.standard_normal(s) for s in ((2, 3, 4), (3, 4), (3, 4)))

    agree(lambda t, F, x, w, b: F.layer_norm(x, (3, 4), w, b, 1e-3), x, w, b, order=2, tolerance=1e-8)
    agree(lambda t, F, x, w: F.layer_norm(x, (3, 4), w), x, w, order=2, tolerance=1e-8)
    agree(lambda t, F, x, b: F.layer_norm(x, (3, 4), None, b), x, b, tolerance=1e-8)


def test_layer_norm_of_one_sample_agrees(agree, rng):
    agree(lambda t, F, x, w: F.layer_norm(x, (6,), w), rng.standard_normal(6), rng.standard_normal(6))


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (2, 3, 4, 5), (1, 3, 2, 2)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_norm_agrees(agree, rng, shape, training, dtype):
    x, w, b = (rng.standard_normal(s).astype(dtype) for s in (shape, (3,), (3,)))
    mean, variance = rng.standard_normal(3).astype(dtype), rng.random(3).astype(dtype)

    def norm(t, F, x, w, b):
        running = t.from_numpy(mean.copy()), t.from_numpy(variance.copy())
        out = F.batch_norm(x, *running, w, b, training, 0.3, 1e-3)
        return (out, *running)

    agree(norm, x, w, b, tolerance=2e-5 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_has_a_second_order(agree, rng, training):
    x, w, b = (rng.standard_normal(s) for s in ((4, 3, 2), (3,), (3,)))

    def norm(t, F, x, w, b):
        return F.batch_norm(x, t.zeros(3, dtype=t.float64), t.ones(3, dtype=t.float64), w, b, training)

    agree(norm, x, w, b, order=2, tolerance=1e-8)


def test_batch_norm_without_affine_or_statistics_agrees(agree, rng):
    agree(
        lambda t, F, x: F.batch_norm(x, None, None, training=True),
        rng.standard_normal((4, 3)),
        order=2,
        tolerance=1e-8,
    )


def test_group_and_rms_norm_agree(agree, rng):
    x, w, b = (rng.standard_normal(s) for s in ((2, 6, 3), (6,), (6,)))

    agree(lambda t, F, x, w, b: F.group_norm(x, 2, w, b), x, w, b, order=2, tolerance=1e-8)
    agree(lambda t, F, x, w: F.rms_norm(x, (3,), w[:3]), x, w, order=2, tolerance=1e-8)


def test_distances_agree(agree, rng):
    a, b = rng.standard_normal((2, 4, 3))

    agree(lambda t, F, a, b: (F.cosine_similarity(a, b), F.pairwise_distance(a, b)), a, b)


REFUSED = {
    "inner sizes": lambda t, F, x: F.linear(x[:, :5], t.zeros(3, 6)),
    "dtypes": lambda t, F, x: F.linear(x.double(), t.zeros(3, 6), t.zeros(3)),
    "integers": lambda t, F, x: F.linear(x.long(), t.zeros(3, 6), t.zeros(3)),
    "bias size": lambda t, F, x: F.linear(x, t.zeros(3, 6), t.zeros(4)),
    "embedding index": lambda t, F, x: F.embedding(t.tensor([9]), x),
    "embedding negative index": lambda t, F, x: F.embedding(t.tensor([-1]), x),
    "embedding dtype": lambda t, F, x: F.embedding(t.tensor([1.0]), x),
    "normalized shape": lambda t, F, x: F.layer_norm(x, (5,)),
    "mixed dtypes": lambda t, F, x: F.layer_norm(x.double(), (6,), t.ones(6)),
    "one value per channel": lambda t, F, x: F.batch_norm(x[:1], None, None, training=True),
    "statistics": lambda t, F, x: F.batch_norm(x, t.zeros(5), t.ones(5)),
}


@pytest.mark.parametrize("name", [n for n in REFUSED if n not in ("bias size", "embedding dtype")])
def test_bad_input_is_refused_in_torchs_words(refuse, rng, name):
    refuse(REFUSED[name], rng.standard_normal((4, 6)).astype(np.float32))


def test_bias_of_another_size_is_refused():
    with pytest.raises(RuntimeError, match="must match the size"):
        tenon.nn.functional.linear(tenon.ones(2, 6), tenon.ones(3, 6), tenon.ones(4))


def test_embedding_names_index_and_rows():
    with pytest.raises(IndexError, match="got index 9, but the table has 4 rows"):
        tenon.nn.functional.embedding(tenon.tensor([0, 9]), tenon.zeros(4, 2))
    with pytest.raises(RuntimeError, match=r"Long, Int; but got torch\.float32"):
        tenon.nn.functional.embedding(tenon.tensor([0.0]), tenon.zeros(4, 2))
