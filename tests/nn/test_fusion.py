"""An evaluated BatchNorm folded into the layer before it."""

from __future__ import annotations

import pytest

import tenon
from tenon import nn
from tenon.errors import ModuleValueError, OptionError
from tenon.nn.utils import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)

PAIRS = {
    "1d": (lambda t: (t.nn.Conv1d(4, 6, 3), t.nn.BatchNorm1d(6)), (2, 4, 9)),
    "grouped": (lambda t: (t.nn.Conv2d(4, 6, 3, groups=2, bias=False), t.nn.BatchNorm2d(6)), (2, 4, 5, 5)),
    "plain norm": (lambda t: (t.nn.Conv2d(3, 6, 3), t.nn.BatchNorm2d(6, affine=False)), (2, 3, 5, 5)),
    "transposed": (lambda t: (t.nn.ConvTranspose2d(3, 5, 3), t.nn.BatchNorm2d(5)), (2, 3, 4, 4)),
    "3d": (lambda t: (t.nn.Conv3d(2, 3, 2), t.nn.BatchNorm3d(3, eps=0.1)), (1, 2, 3, 3, 3)),
    "linear": (lambda t: (t.nn.Linear(4, 6), t.nn.BatchNorm1d(6)), (3, 4)),
    "linear, no bias": (lambda t: (t.nn.Linear(4, 6, bias=False), t.nn.BatchNorm1d(6)), (3, 4)),
    "linear, plain norm": (lambda t: (t.nn.Linear(4, 6), t.nn.BatchNorm1d(6, affine=False)), (3, 4)),
}


def evaluated(t, make):
    """The pair that ``make`` makes, in double, with weights and statistics that differ by channel."""
    layer, norm = (module.double().eval() for module in make(t))
    for module in (layer, norm):
        for number, value in enumerate((*module.parameters(), *module.buffers())):
            if value.is_floating_point():
                values = t.arange(value.numel(), dtype=t.float64).reshape(value.shape)
                value.data.copy_((values * 0.7 + number).cos() + 1.5)
    return layer, norm


def fused_pair(t, layer, norm):
    """The two as one layer, by ``t.nn.utils``."""
    if isinstance(layer, t.nn.Linear):
        return t.nn.utils.fuse_linear_bn_eval(layer, norm)
    return t.nn.utils.fuse_conv_bn_eval(layer, norm, transpose=isinstance(layer, t.nn.ConvTranspose2d))


@pytest.mark.parametrize("name", PAIRS)
def test_the_fused_layer_gives_what_the_two_gave(name, rng):
    make, shape = PAIRS[name]
    layer, norm = evaluated(tenon, make)
    before, x = layer.weight.clone(), tenon.from_numpy(rng.standard_normal(shape)).double()

    fused = fused_pair(tenon, layer, norm)

    assert type(fused) is type(layer)
    assert fused is not layer
    assert tenon.equal(layer.weight, before)
    tenon.testing.assert_close(fused(x), norm(layer(x)))


@pytest.mark.oracle
@pytest.mark.parametrize("name", [name for name in PAIRS if name != "linear, plain norm"])
def test_the_fused_weights_are_torchs(name):
    torch = pytest.importorskip("torch")

    ours, theirs = (fused_pair(t, *evaluated(t, PAIRS[name][0])) for t in (tenon, torch))

    for mine, other in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
        assert tuple(mine.shape) == tuple(other.shape)
        tenon.testing.assert_close(mine.detach(), tenon.from_numpy(other.detach().numpy()))


def test_a_norm_of_one_feature_fuses_with_any_linear_layer():
    layer, norm = evaluated(tenon, lambda t: (t.nn.Linear(4, 6, bias=False), t.nn.BatchNorm1d(1)))
    x = tenon.arange(8.0).reshape(2, 4).double()

    fused = fuse_linear_bn_eval(layer, norm)

    assert fused.bias.shape == (6,)
    tenon.testing.assert_close(fused(x), norm(layer(x).reshape(-1, 1)).reshape(2, 6))


def test_fused_parameters_keep_dtype_and_requirement_of_the_layers_own():
    statistics = tenon.zeros(2), tenon.ones(2), 1e-5, None, None
    weight = tenon.ones(2, 3, 1, dtype=tenon.bfloat16)
    linear = nn.Parameter(tenon.ones(2, 3)), nn.Parameter(tenon.ones(2), requires_grad=False)

    made = fuse_conv_bn_weights(weight, None, *statistics), fuse_linear_bn_weights(*linear, *statistics)

    assert [p.dtype for p in made[0]] == [tenon.bfloat16, tenon.bfloat16]
    assert [p.requires_grad for p in (*made[0], *made[1])] == [False, False, True, False]
    assert all(isinstance(p, nn.Parameter) and p.is_leaf for p in (*made[0], *made[1]))


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (
            lambda: fuse_conv_bn_eval(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3).eval()),
            OptionError,
            "only for eval",
        ),
        (
            lambda: fuse_conv_bn_eval(
                nn.Conv1d(2, 3, 1).eval(), nn.BatchNorm1d(3, track_running_stats=False).eval()
            ),
            OptionError,
            "must not be None",
        ),
        (
            lambda: fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(4).eval()),
            OptionError,
            "linear.out_features=3 and bn.num_features=4",
        ),
        (
            lambda: fuse_conv_bn_eval(nn.ConvTranspose1d(1, 3, 1).eval(), nn.BatchNorm1d(3).eval()),
            ModuleValueError,
            "transpose=True",
        ),
    ],
)
def test_what_cannot_be_fused_says_why(action, error, message):
    with pytest.raises(error, match=message):
        action()
