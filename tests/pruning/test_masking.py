"""Selecting what to mask over a whole model: channels with all their elements, and single weights."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.compress.receipt import difference
from tenon.errors import ModuleTypeError, ModuleValueError, PruningError, ShapeError
from tenon.extend import Criterion, hookimpl
from tenon.nn.utils import prune
from tenon.plugins.manager import host


@pytest.fixture(autouse=True)
def seed():
    tenon.manual_seed(0)


class Residual(nn.Module):
    """A gate for each channel, a residual sum, and a linear layer after flattening."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.squeeze, self.excite = nn.Linear(8, 4), nn.Linear(4, 8)
        self.last = nn.Conv2d(8, 8, 1)
        self.out = nn.Linear(8 * 16, 3)

    def forward(self, x):
        x = nn.functional.relu(self.norm(self.stem(x)))
        gate = self.excite(nn.functional.relu(self.squeeze(x.mean((2, 3))))).sigmoid()
        x = x + self.last(x * gate[:, :, None, None])
        return self.out(x.flatten(1))


def example():
    return tenon.randn(2, 1, 4, 4)


def weights():
    return [(nn.Linear(3, 4), "weight"), (nn.Conv2d(2, 3, 1), "weight")]


def test_half_the_channels_are_masked_with_all_that_depends_on_them():
    model, x = Residual(), example()

    count = tenon.prune.mask_channels(model, x, 0.5, scope="layer")
    wanted = model.eval()(x)
    tenon.prune.compact(model, x, seconds=0)

    assert count == 4 + 2
    assert model.stem.out_channels == model.norm.num_features == model.last.out_channels == 4
    assert (model.squeeze.out_features, model.out.in_features) == (2, 64)
    assert difference(model(x), wanted) < 1e-5


def test_the_channels_of_the_smallest_scores_go_relative_to_their_peers():
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    with tenon.no_grad():
        for layer, scale in ((0, 1.0), (2, 100.0)):
            model[layer].weight.copy_(
                scale * tenon.arange(1.0, 7.0)[:, None].expand(model[layer].weight.shape)
            )
            model[layer].bias.zero_()
        model[4].weight.fill_(1.0)

    tenon.prune.mask_channels(model, tenon.randn(3, 2), 4 / 12)

    rows = [set(np.flatnonzero((model[i].weight == 0).all(1).numpy()).tolist()) for i in (0, 2)]
    assert sum(map(len, rows)) == 4 and rows[1] >= {0, 1}


def test_a_growing_amount_masks_more_within_the_same_masks():
    model, x = Residual(), example()

    tenon.prune.mask_channels(model, x, 0.25, scope="layer")
    first = (model.stem.weight == 0).all((1, 2, 3))
    tenon.prune.mask_channels(model, x, 0.5, scope="layer")
    second = (model.stem.weight == 0).all((1, 2, 3))

    assert (int(first.sum()), int(second.sum())) == (2, 4) and bool((second | ~first).all())
    assert not isinstance(prune.method_of(model.stem, "weight"), prune.PruningContainer)


def test_modules_to_keep_lose_nothing_and_one_of_each_stays():
    model, x = Residual(), example()

    assert tenon.prune.mask_channels(model, x, 0.9, keep=["st*"]) == 3  # of 4
    assert not prune.is_pruned(model.stem) and prune.is_pruned(model.squeeze)


def test_weights_are_masked_over_the_model_or_layer_by_layer():
    for scope in ("global", "layer"):
        model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))
        with tenon.no_grad():
            model[1].weight.mul_(100)

        assert tenon.prune.mask_weights(model, 0.3, scope=scope) == 60
        assert tenon.prune.mask_weights(model, 0.5, scope=scope) == 100

        zeros = [int((layer.weight == 0).sum()) for layer in model]
        assert zeros == ([50, 50] if scope == "layer" else zeros) and sum(zeros) == 100
        assert zeros[0] > 90 or scope == "layer"
        assert tenon.prune.mask_weights(model, 0.5, keep=["0"]) == 50


@pytest.mark.parametrize("name", ["Gradient", "Taylor"])
def test_criteria_of_slopes_follow_the_gradient_and_ask_for_it(name):
    layer = nn.Linear(2, 1, bias=False)
    with tenon.no_grad():
        layer.weight.copy_(tenon.tensor([[1.0, 5.0]]))

    with pytest.raises(PruningError, match=f"'weight': {name} needs gradients.*has none"):
        tenon.prune.mask_weights(layer, 0.5, name)
    layer(tenon.tensor([[10.0, 0.1]])).sum().backward()
    tenon.prune.mask_weights(layer, 0.5, name)

    assert layer.weight.tolist() == [[1.0, 0.0]]
    layer(tenon.tensor([[0.1, 10.0]])).sum().backward()
    getattr(prune, name).apply(layer, "weight", 0)  # gradients of masked weights are found too
    assert layer.weight.tolist() == [[1.0, 0.0]]


def test_criteria_are_pruning_methods_of_single_weights_too():
    for layer, name in weights():
        prune.Magnitude.apply(layer, name, amount=0.5)
        assert int((layer.weight == 0).sum()) == layer.weight.numel() // 2
    layer = nn.Linear(20, 20)
    assert tenon.prune.mask_weights(layer, 0.25, "Random") == 100


def test_a_criterion_of_a_plugin_is_known_by_its_name():
    class Spread(Criterion):
        def score(self, weight, gradient):
            return (weight - weight.mean()).abs()

    class Plugin:
        @hookimpl
        def tenon_pruners(self):
            return {"Spread": Spread}

    plugin, layer = Plugin(), nn.Linear(2, 2)
    with tenon.no_grad():
        layer.weight.copy_(tenon.tensor([[10.0, 11.0], [12.0, 9.0]]))
    host().register(plugin, "spread")
    try:
        tenon.prune.mask_weights(layer, 0.5, "Spread")
    finally:
        host().unregister(plugin)

    assert layer.weight.tolist() == [[0.0, 0.0], [12.0, 9.0]]


def test_two_of_four_weights_in_a_row_stay():
    for layer in (nn.Linear(8, 6), nn.Conv2d(4, 6, 3)):
        before = layer.weight.detach().reshape(6, -1, 4).clone()
        prune.NOfM.apply(layer, "weight", 2, 4)
        runs = layer.weight.detach().reshape(6, -1, 4)
        assert bool(((runs != 0).sum(-1) == 2).all())
        assert tenon.allclose(runs.abs().sum(-1), before.abs().sort(-1).values[..., 2:].sum(-1))
    with pytest.raises(ShapeError, match="not a multiple of 4"):
        prune.NOfM.apply(nn.Linear(6, 2), "weight")
    with pytest.raises(ModuleValueError, match="fewer than all"):
        prune.NOfM.apply(nn.Linear(8, 2), "weight", 4, 4)


def test_parameters_that_modules_share_are_not_masked():
    model = nn.Sequential(
        nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 8), nn.Linear(8, 2)
    )
    model[2].weight = model[0].weight

    assert tenon.prune.mask_channels(model, tenon.ones(1, 4), 0.5) == 4
    assert not prune.is_pruned(model[:3]) and prune.is_pruned(model[4])
    with pytest.raises(PruningError, match=r"0\.weight and 2\.weight are one parameter"):
        tenon.prune.mask_weights(model, 0.5)
    prune.l1_unstructured(model[0], "weight", 3)
    with pytest.raises(PruningError, match=r"compact: 0\.weight_orig and 2\.weight are one parameter"):
        tenon.prune.compact(model, tenon.ones(1, 4))


def test_bad_amounts_scopes_and_criteria_are_refused():
    model, x = Residual(), example()
    for amount in (1.5, -0.1):
        with pytest.raises(ModuleValueError):
            tenon.prune.mask_channels(model, x, amount)
    for amount in (1.0, 3):
        with pytest.raises(PruningError, match="share below 1"):
            tenon.prune.mask_weights(model, amount)
    with pytest.raises(PruningError, match="scope is"):
        tenon.prune.mask_channels(model, x, 0.5, scope="all")
    with pytest.raises(ModuleTypeError, match="not a criterion"):
        tenon.prune.mask_channels(model, x, 0.5, "LnStructured")
    with pytest.raises(LookupError, match="Magnitude"):
        tenon.prune.mask_channels(model, x, 0.5, "Magnitud")
    with pytest.raises(PruningError, match="no channels"):
        tenon.prune.mask_channels(nn.Linear(2, 2), tenon.ones(1, 2), 0.5)
    with pytest.raises(PruningError, match="no parameter of two axes"):
        tenon.prune.mask_weights(nn.BatchNorm1d(2), 0.5)

    class Broken(Criterion):
        def score(self, weight, gradient):
            return weight / 0

    with pytest.raises(PruningError, match=r"Broken returns scores of 'stem\.weight' that are not finite"):
        tenon.prune.mask_weights(model, 0.5, Broken)
    assert not prune.is_pruned(model)
