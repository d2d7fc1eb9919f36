"""Grouped convolutions lose whole groups, or as many channels in each."""

import pytest

import tenon
from tenon import nn
from tenon.compress.receipt import difference
from tenon.errors import PruningError
from tenon.nn.utils import prune


def make(padding=0):
    layers = nn.Conv2d(2, 8, 3), nn.Conv2d(8, 12, 3, padding=padding, groups=2), nn.Conv2d(12, 2, 1)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]).eval()


def zero(layer, rows, bias=True):
    for name in ("weight", "bias")[: 1 + bias]:
        mask = tenon.ones_like(getattr(layer, name))
        mask[rows] = 0
        prune.custom_from_mask(layer, name, mask)


def smaller(model):
    """``model`` compacted and reloaded, and the receipt; its outputs are those of before."""
    x, other = tenon.randn(2, 2, 7, 7), tenon.randn(3, 2, 9, 8)
    wanted = model(x), model(other)
    receipt = tenon.prune.compact(model, x, seconds=0)
    fresh = tenon.prune.load(make(), model.state_dict())
    for each in (model, fresh):
        assert difference((each(x), each(other)), wanted) < 1e-5
    return fresh, receipt


@pytest.fixture(autouse=True)
def seed():
    tenon.manual_seed(0)


def test_each_group_loses_as_many_inputs_and_outputs_but_other_ones():
    model = make()
    zero(model[0], [0, 2, 5, 6, 7])  # two of the first group, three of the second
    zero(model[2], [1, 8])

    fresh, receipt = smaller(model)

    assert fresh[2].weight.shape == (10, 2, 3, 3) and fresh[2].groups == 2
    assert (fresh[0].out_channels, fresh[2].in_channels, fresh[4].in_channels) == (4, 4, 10)
    assert receipt.notes == ("1 zero rows of 0.weight stay: all groups of a convolution lose equally many",)
    zero(model[2], [0, 5])
    assert smaller(model)[0][2].weight.shape == (8, 2, 3, 3)  # and again


def test_a_group_whose_outputs_nobody_reads_goes_with_the_inputs_that_it_alone_read():
    model = make()
    mask = tenon.ones_like(model[4].weight)
    mask[:, :6] = 0
    prune.custom_from_mask(model[4], "weight", mask)

    fresh, _ = smaller(model)

    assert (fresh[2].groups, fresh[2].in_channels, fresh[2].out_channels) == (1, 4, 6)
    assert fresh[0].out_channels == 4


def test_constants_of_zero_channels_go_into_the_bias_of_their_group_unless_zeros_are_padded():
    model, padded = make(), make(1)
    for each in (model, padded):
        nn.init.ones_(each[0].bias)
        zero(each[0], [1, 4], bias=False)

    assert smaller(model)[0][2].in_channels == 6
    with pytest.raises(PruningError, match=r"2 zero rows of 0\.weight stay: '2' reads values"):
        smaller(padded)
