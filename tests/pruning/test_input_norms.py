"""Norms of inputs for pruning criteria: ``tenon.prune.record_inputs`` and ``Wanda``."""

import numpy as np
import pytest

import tenon as torch
from tenon import nn
from tenon.errors import PruningError
from tenon.nn.input_norms import input_norms


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_norms_add_up_over_calls_and_all_leading_axes(rng):
    layer = nn.Linear(3, 2)
    x = rng.standard_normal((2, 5, 3)).astype(np.float32)
    with torch.prune.record_inputs(layer):
        for part in x:
            layer(torch.from_numpy(part))
    layer(torch.full((4, 3), 100.0))  # outside
    norms = input_norms(layer, layer.weight)
    np.testing.assert_allclose(norms.numpy(), np.sqrt((x**2).sum((0, 1)))[None], rtol=1e-6)
    with torch.prune.record_inputs(layer):
        layer(torch.zeros(3))
    assert not input_norms(layer, layer.weight).any()  # begins anew


def test_layers_that_are_called_by_keyword_or_without_features_are_recorded():
    layer, convolution = nn.Linear(2, 1), nn.Conv1d(2, 1, 1)
    with pytest.warns(UserWarning, match=r"zero-element tensors"):
        empty = nn.Linear(0, 3)
    with torch.prune.record_inputs(nn.ModuleList([layer, convolution, empty])):
        layer(input=torch.tensor([3.0, 4.0]))
        convolution(input=torch.ones(2, 9))
        empty(torch.ones(5, 0))
    assert input_norms(layer, layer.weight).tolist() == [[3, 4]]
    assert input_norms(convolution, convolution.weight).tolist() == [[[3], [3]]]
    assert input_norms(empty, empty.weight).shape == (1, 0)


@pytest.mark.parametrize(("groups", "shape"), [(1, (2, 4, 5, 5)), (2, (2, 4, 5, 5)), (4, (4, 5, 5))])
def test_norms_of_convolutions_are_those_of_channels(rng, groups, shape):
    layer = nn.Conv2d(4, 8, 3, groups=groups)
    x = rng.standard_normal(shape).astype(np.float32)
    with torch.prune.record_inputs(nn.Sequential(layer)):
        layer(torch.from_numpy(x))
    channels = np.sqrt((x**2).sum((0, 2, 3) if x.ndim == 4 else (1, 2)))
    expected = np.empty((8, 4 // groups))
    for row in range(8):
        group = row // (8 // groups)
        expected[row] = channels[group * 4 // groups : (group + 1) * 4 // groups]
    norms = torch.zeros(8, 4 // groups, 1, 1) + input_norms(layer, layer.weight)
    np.testing.assert_allclose(norms.numpy()[..., 0, 0], expected, rtol=1e-6)


def test_wanda_masks_each_row_by_weight_times_input(rng):
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 6))
    x = torch.from_numpy(
        rng.standard_normal((16, 8)).astype(np.float32) * np.logspace(-2, 2, 8, dtype=np.float32)
    )
    with torch.prune.record_inputs(model):
        hidden = model[:2](x)
        model[2](hidden)
    weights = [model[i].weight.detach().numpy().copy() for i in (0, 2)]
    assert torch.prune.mask_weights(model, 0.5, "Wanda", scope="row") == 16 + 12
    for weight, layer, inputs in zip(weights, (model[0], model[2]), (x, hidden), strict=True):
        scores = np.abs(weight) * np.linalg.norm(inputs.detach().numpy(), axis=0)
        for row, kept in zip(scores, layer.weight_mask.numpy(), strict=True):
            assert set(np.flatnonzero(kept == 0)) == set(np.argsort(row)[: len(row) // 2])


def test_wanda_prunes_single_weights_and_not_channels_which_have_biases(rng):
    example = torch.from_numpy(rng.standard_normal((3, 4)).astype(np.float32))
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.prune.record_inputs(model):
        model(example)
    nn.utils.prune.Wanda.apply(model[0], "weight", amount=5)
    assert (model[0].weight == 0).sum() == 5
    with pytest.raises(PruningError, match=r"recorded for 'bias' of .*mask these, by mask_weights"):
        torch.prune.mask_channels(model, example, 0.5, "Wanda")


def test_layers_without_recorded_inputs_are_named(rng):
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 2))
    with torch.prune.record_inputs(model):
        model(torch.tensor([1, 2]))
    with pytest.raises(PruningError, match=r"'0.weight': Wanda needs the norms of inputs.*Embedding"):
        torch.prune.mask_weights(model, 0.5, "Wanda")
    assert torch.prune.mask_weights(model, 0.5, "Wanda", keep=["0"]) == 4
    with pytest.raises(PruningError, match=r"needs the norms of inputs"):
        torch.prune.mask_weights(nn.Linear(2, 2), 0.5, "Wanda")


def test_hooks_are_removed_also_after_an_error(rng):
    layer = nn.Linear(2, 2)
    with pytest.raises(RuntimeError), torch.prune.record_inputs(layer):
        raise RuntimeError
    assert not layer._forward_pre_hooks


def test_rows_are_refused_where_there_are_none():
    with pytest.raises(PruningError, match=r"scope is 'global' or 'layer', got 'row'"):
        torch.prune.mask_channels(nn.Linear(2, 2), torch.ones(1, 2), 0.5, scope="row")
    with pytest.raises(PruningError, match=r"scope is 'global' or 'layer' or 'row', got 'column'"):
        torch.prune.mask_weights(nn.Linear(2, 2), 0.5, scope="column")


@pytest.mark.slow
def test_a_run_that_would_need_inputs_is_refused_before_it_begins(tmp_path):
    from click.testing import CliRunner

    from tenon.cli import main

    arguments = [
        "train",
        "digits",
        "--set",
        "prune={amount = 0.5, criterion = 'Wanda'}",
        "--set",
        f"output={tmp_path}",
    ]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code != 0
    assert "prune.criterion = 'Wanda' needs the norms of inputs" in f"{done.output}{done.exception}"
