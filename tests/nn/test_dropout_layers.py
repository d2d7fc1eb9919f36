"""Dropout: which units are dropped, accepted ranks, and the statistics that alpha dropout preserves."""

import warnings

import pytest

import tenon
from tenon import nn
from tenon.nn import functional as F


def whole(result, lead):
    """Whether everything at each index of the first ``lead`` axes is all zero or all kept."""
    flat = result.reshape(*result.shape[:lead], -1)
    zero = (flat == 0).all(-1)
    return bool((zero | (flat != 0).all(-1)).all()) and bool(zero.any())


@pytest.mark.parametrize(
    ("drop", "size", "lead"),
    [
        (F.dropout1d, (20, 9, 4), 2),
        (F.dropout1d, (20, 4), 1),
        (F.dropout2d, (20, 9, 4, 4), 2),
        (F.dropout3d, (20, 9, 2, 4, 4), 2),
        (F.dropout3d, (20, 2, 4, 4), 1),
    ],
)
def test_channels_are_dropped_whole(drop, size, lead):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert whole(drop(tenon.ones(*size)), lead)


def test_dropout2d_of_three_axes_drops_channels_of_a_batch_and_says_so():
    with pytest.warns(UserWarning, match="assuming that channel-wise 1D dropout behavior is desired"):
        result = F.dropout2d(tenon.ones(20, 9, 4))

    assert whole(result, 2)
    assert not whole(result.reshape(20, -1), 1)


@pytest.mark.parametrize(("drop", "rank", "name"), [(F.dropout2d, 5, "2d"), (F.dropout3d, 3, "3d")])
def test_other_ranks_are_deprecated(drop, rank, name):
    with pytest.warns(UserWarning, match=f"Received a {rank}-D input to dropout{name}"):
        drop(tenon.ones(*(2,) * rank))


def test_dropout1d_refuses_other_ranks():
    with pytest.raises(RuntimeError, match="Expected 2D or 3D input, but received a 4D input"):
        F.dropout1d(tenon.ones(1, 2, 2, 2))


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("layer", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_deviation(layer, inplace):
    tenon.manual_seed(0)
    x = tenon.randn(400, 50, 4)
    before = float(x.mean()), float(x.std())

    y = layer(0.4, inplace)(x)

    assert (y is x) == inplace
    assert abs(float(y.mean()) - before[0]) < 0.05
    assert abs(float(y.std()) - before[1]) < 0.05
    assert layer(0.4).eval()(x) is x


def test_alpha_dropout_of_everything_is_zero():
    assert F.alpha_dropout(tenon.ones(3), 1.0, training=True).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        F.feature_alpha_dropout(tenon.ones(3), 0.5, training=True)


def test_a_mask_has_the_memory_order_of_the_input():
    x = tenon.ones(4, 5, 6).permute(2, 0, 1)[1:]

    y = F.dropout(x, 0.5)

    assert y.permute(1, 2, 0).is_contiguous()


def test_the_numbers_of_a_permuted_mask_follow_the_memory():
    tenon.manual_seed(3)
    plain = F.dropout(tenon.ones(4, 5), 0.5)
    tenon.manual_seed(3)
    turned = F.dropout(tenon.ones(4, 5).t(), 0.5)

    assert tenon.equal(turned, plain.t())


def test_sparse_embedding_without_gradients_looks_up_and_a_weight_has_two_axes():
    table = tenon.tensor([[1.0, 2.0], [3.0, 4.0]])

    assert nn.Embedding.from_pretrained(table, sparse=True)(tenon.tensor([1])).tolist() == [[3.0, 4.0]]
    with pytest.raises(RuntimeError, match="'weight' must be 2-D"):
        F.embedding(tenon.tensor([0]), tenon.tensor(1.0))
