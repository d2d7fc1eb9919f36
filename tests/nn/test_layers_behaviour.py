"""What single layers do beyond computing: modes, statistics, dropout's numbers, embedding tables, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.random import keys

pytestmark = pytest.mark.together


def test_batch_norm_averages_all_batches_without_momentum():
    layer = nn.BatchNorm1d(2, momentum=None)
    batches = [tenon.tensor([[0.0, 2.0], [2.0, 4.0]]), tenon.tensor([[4.0, 0.0], [6.0, 2.0]])]

    for batch in batches:
        layer(batch)

    np.testing.assert_allclose(layer.running_mean.numpy(), [3.0, 2.0], rtol=1e-6)
    assert layer.num_batches_tracked.item() == 2


def test_batch_norm_in_evaluation_leaves_its_statistics_alone():
    layer = nn.BatchNorm1d(2).eval()
    before = {k: v.clone() for k, v in layer.state_dict().items()}

    layer(tenon.randn(4, 2))

    assert all(bool((v == before[k]).all()) for k, v in layer.state_dict().items())


def test_batch_norm_loads_states_of_version_1():
    layer = nn.BatchNorm1d(2)
    state = {k: v for k, v in layer.state_dict().items() if k != "num_batches_tracked"}

    result = layer.load_state_dict(state)

    assert str(result) == "<All keys matched successfully>"


def test_running_statistics_are_updated_without_history():
    layer = nn.BatchNorm1d(2)

    layer(tenon.randn(4, 2, requires_grad=True))

    assert not layer.running_mean.requires_grad


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (lambda: nn.BatchNorm2d(3), (4, 3), r"expected 4D input \(got 2D input\)"),
        (lambda: nn.BatchNorm1d(3), (1, 3), "Expected more than 1 value per channel when training"),
        (lambda: nn.BatchNorm2d(5), (2, 3, 4, 4), "should contain 3 elements not 5"),
        (
            lambda: nn.LayerNorm(5),
            (2, 3),
            r"Given normalized_shape=\[5\], expected input with shape \[\*, 5\]",
        ),
        (lambda: nn.Linear(5, 2), (2, 4), r"mat1 and mat2 shapes cannot be multiplied \(2x4 and 5x2\)"),
        (
            lambda: nn.Conv2d(3, 4, 3),
            (1, 4, 8, 8),
            r"expected input\[1, 4, 8, 8\] to have 3 channels, but got 4",
        ),
        (lambda: nn.Conv2d(3, 4, 3), (1, 3, 2, 2), r"Calculated padded input size per channel: \(2 x 2\)"),
        (lambda: nn.Softmax2d(), (2, 3), "expected input to be 3D or 4D"),
        (lambda: nn.PReLU(4), (2, 3), "Mismatch of parameter numbers"),
    ],
)
def test_wrong_inputs_are_refused_in_torchs_words(layer, shape, message):
    with pytest.raises((RuntimeError, ValueError), match=message):
        layer()(tenon.ones(shape))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "in_channels must be divisible by groups"),
        (lambda: nn.Conv2d(4, 3, 3, groups=2), "out_channels must be divisible by groups"),
        (lambda: nn.Conv2d(4, 4, 3, groups=0), "groups must be a positive integer"),
        (lambda: nn.Conv2d(4, 4, 3, padding="foo"), "Invalid padding string 'foo'"),
        (lambda: nn.Conv2d(4, 4, 3, stride=2, padding="same"), "not supported for strided convolutions"),
        (lambda: nn.Conv2d(4, 4, 3, stride=(1, 4, 1), padding="same"), "not supported for strided"),
        (lambda: nn.Conv2d(4, 4, 3, padding_mode="mirror"), "padding_mode must be one of"),
        (lambda: nn.Dropout(1.5), "dropout probability has to be between 0 and 1, but got 1.5"),
        (lambda: nn.Embedding(3, 2, padding_idx=3), "Padding_idx must be within num_embeddings"),
        (lambda: nn.Embedding(3, 2, _weight=tenon.ones(2, 2)), "Shape of weight does not match"),
        (lambda: nn.GroupNorm(2, 5), "must be divisible by num_groups"),
        (lambda: nn.Hardtanh(1.0, 0.0), "max_val must be larger than min_val"),
        (lambda: nn.Unflatten("dim", (1, 2)), "Unflatten takes an int"),
        (lambda: nn.Unflatten(0, (1, 2.5)), "found element of type float at pos 1"),
    ],
)
def test_wrong_settings_are_refused_at_once(make, message):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        make()


def test_a_layer_in_the_wrong_dtype_says_which():
    with pytest.raises(RuntimeError, match="must have the same dtype, but got Double and Float"):
        nn.Linear(2, 2)(tenon.ones(2, 2, dtype=tenon.float64))


def test_dropout_is_the_identity_in_evaluation_and_without_probability():
    x = tenon.randn(3, 4)

    assert nn.Dropout(0.5).eval()(x) is x
    assert nn.Dropout(0.0)(x) is x


def test_dropout_of_everything_gives_zeros_and_zero_gradients():
    x = tenon.randn(3, 4, requires_grad=True)

    nn.Dropout(1.0)(x).sum().backward()

    assert not bool(x.grad.any())


def test_dropout_keeps_the_mean_and_scales_the_kept():
    tenon.manual_seed(0)

    y = nn.Dropout(0.25)(tenon.ones(20000))

    assert set(np.unique(y.numpy())) == {np.float32(0), np.float32(4 / 3)}
    assert abs(y.mean().item() - 1) < 0.02


def test_keyed_dropout_belongs_to_the_sample_not_to_the_batch():
    layer, x = nn.Dropout(0.5), tenon.ones(4, 50)
    with keys.keyed(seed=5, step=2, samples=[10, 11, 12, 13]):
        whole = layer(x)
    with keys.keyed(seed=5, step=2, samples=[12, 13]):
        part = layer(x[:2])
    with keys.keyed(seed=5, step=3, samples=[12, 13]):
        later = layer(x[:2])

    assert bool((whole[2:] == part).all())
    assert not bool((later == part).all())


def test_two_dropouts_of_one_step_differ():
    layer, x = nn.Dropout(0.5), tenon.ones(2, 50)

    with keys.keyed(seed=5, step=2, samples=[0, 1]):
        first, second = layer(x), layer(x)

    assert not bool((first == second).all())


@pytest.mark.oracle
def test_embedding_agrees_with_torch():
    torch = pytest.importorskip("torch")
    results = []
    for t in (tenon, torch):
        t.manual_seed(4)
        layer = t.nn.Embedding(6, 3, padding_idx=-1, max_norm=1.0)
        y = layer(t.tensor([[0, 5, 2], [2, 2, 1]]))
        (y * y).sum().backward()
        results.append(
            [layer.weight.detach().numpy(), y.detach().numpy(), layer.weight.grad.numpy(), repr(layer)]
        )

    for a, b in zip(results[0][:3], results[1][:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert results[0][3] == results[1][3]


def test_pretrained_embedding_shares_memory_and_is_frozen():
    table = tenon.tensor([[1.0, 2.0], [3.0, 4.0]])

    layer = nn.Embedding.from_pretrained(table)
    table[0, 0] = 9.0

    assert not layer.weight.requires_grad
    assert layer(tenon.tensor([0])).tolist() == [[9.0, 2.0]]
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad


def test_an_index_out_of_range_names_index_table_and_module():
    model = nn.Sequential(nn.Embedding(3, 2))

    with pytest.raises(
        IndexError, match="index out of range in self: embedding got index 7, but the table has 3 rows"
    ):
        model(tenon.tensor([0, 7]))


def test_max_pool_returns_indices_when_asked():
    values, indices = nn.MaxPool2d(2, return_indices=True)(tenon.arange(16.0).reshape(1, 1, 4, 4))

    assert values.tolist() == [[[[5.0, 7.0], [13.0, 15.0]]]]
    assert indices.tolist() == [[[[5, 7], [13, 15]]]]


def test_softmax_without_an_axis_warns_and_guesses_as_torch():
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        y = nn.Softmax()(tenon.zeros(2, 4))

    assert y.tolist() == [[0.25] * 4] * 2


HALVES = [
    nn.Linear,
    nn.Conv2d,
    nn.LayerNorm,
    nn.GELU,
    nn.Softmax,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.Softplus,
]
SETTINGS = {
    nn.Linear: (4, 3),
    nn.Conv2d: (2, 3, 3),
    nn.GELU: (),
    nn.Softplus: (),
    nn.Softmax: (1,),
    nn.LayerNorm: (4,),
}


@pytest.mark.parametrize("dtype", [tenon.float16, tenon.bfloat16], ids=str)
@pytest.mark.parametrize("cls", HALVES)
def test_half_precision_stays_half_precision(cls, dtype):
    layer = cls(*SETTINGS.get(cls, (2,))).to(dtype)
    x = tenon.rand(1, 2, 4, 4).to(dtype).requires_grad_()

    y = layer(x)
    y.sum().backward()

    assert (y.dtype, x.grad.dtype) == (dtype, dtype)


def test_legacy_reductions_warn_and_still_work():
    with pytest.warns(UserWarning, match="reduction='sum'"):
        loss = nn.MSELoss(size_average=False)

    assert loss.reduction == "sum"


def test_layers_are_at_torchs_paths():
    from tenon.nn.modules import activation, batchnorm, conv, linear, loss, pooling, sparse
    from tenon.nn.modules.utils import _pair

    assert linear.Linear is nn.Linear
    assert conv.Conv2d is nn.modules.Conv2d is nn.Conv2d
    assert batchnorm._BatchNorm in nn.BatchNorm2d.__mro__
    assert (activation.ReLU, loss.MSELoss, pooling.MaxPool2d, sparse.Embedding) == (
        nn.ReLU,
        nn.MSELoss,
        nn.MaxPool2d,
        nn.Embedding,
    )
    assert _pair(3) == (3, 3)


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_seed_gives_convolutions_the_same_weights_in_every_memory_format(kind):
    layer = kind(3, 4, 2)
    drawn = []
    for memory_format in (tenon.contiguous_format, tenon.channels_last):
        layer.to(memory_format=memory_format)
        tenon.manual_seed(3)
        layer.reset_parameters()
        drawn.append(layer.weight.detach().clone())

    assert layer.weight.is_contiguous(memory_format=tenon.channels_last)
    assert tenon.equal(*drawn)
