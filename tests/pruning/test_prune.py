"""Pruning: masked elements, storage, removal, and errors."""

import copy
import pickle

import pytest

import tenon
from tenon import nn
from tenon.nn.utils import prune


@pytest.fixture
def layer():
    layer = nn.Linear(4, 2)
    layer.weight = nn.Parameter(tenon.tensor([[1.0, 2.0, 3.0, 4.0], [-4.0, -3.0, -2.0, -1.0]]))
    return layer


def test_the_smallest_magnitudes_go_first_and_stay_away(layer):
    prune.l1_unstructured(layer, "weight", amount=2)
    assert layer.weight.tolist() == [[0, 2, 3, 4], [-4, -3, -2, 0]]

    prune.l1_unstructured(layer, "weight", amount=2)
    assert layer.weight.tolist() == [[0, 0, 3, 4], [-4, -3, 0, 0]]
    assert layer.weight_orig.tolist() == [[1, 2, 3, 4], [-4, -3, -2, -1]]


def test_scores_are_used_instead_of_values(layer):
    scores = tenon.tensor([[4.0, 2.0, 1.0, 3.0], [-3.0, -1.0, -2.0, -4.0]])

    prune.l1_unstructured(layer, "weight", amount=2, importance_scores=scores)

    assert layer.weight.tolist() == [[1, 2, 0, 4], [-4, 0, -2, -1]]


def test_a_pruned_weight_is_stored_as_original_and_mask(layer):
    parameter = layer.weight

    prune.identity(layer, "weight")

    assert list(layer.state_dict()) == ["bias", "weight_orig", "weight_mask"]
    assert layer.weight_orig is parameter and tenon.equal(layer.weight_mask, tenon.ones(2, 4))
    assert type(layer) is nn.Linear and prune.is_pruned(nn.Sequential(layer))


def test_gradients_reach_only_what_is_kept_and_steps_are_seen_at_once(layer):
    prune.custom_from_mask(layer, "weight", tenon.tensor([[1, 0, 1, 0], [0, 1, 0, 1]]))
    layer(tenon.ones(1, 4)).sum().backward()

    assert tenon.equal(layer.weight_orig.grad, layer.weight_mask)
    with tenon.no_grad():
        layer.weight_orig.mul_(2.0)
    assert layer.weight.tolist() == [[2, 0, 6, 0], [0, -6, 0, -2]]


def test_removing_makes_the_zeros_permanent_and_keeps_the_parameter(layer):
    parameter = layer.weight
    prune.l1_unstructured(layer, "weight", amount=0.5)
    value = layer.weight.detach().clone()

    prune.remove(layer, "weight")

    assert layer.weight is parameter and tenon.equal(parameter, value)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    assert not prune.is_pruned(layer) and not layer._forward_pre_hooks
    with pytest.raises(ValueError, match="has to be pruned before pruning can be removed"):
        prune.remove(layer, "weight")


def test_slices_go_by_their_norm():
    layer = nn.Conv2d(3, 2, 2)
    with tenon.no_grad():
        layer.weight.copy_(tenon.arange(24.0).reshape(2, 3, 2, 2) - 4)

    prune.ln_structured(layer, "weight", amount=1, n=2, dim=1)
    assert layer.weight_mask.sum((0, 2, 3)).tolist() == [0, 8, 8]

    prune.ln_structured(layer, "weight", amount=1, n=float("inf"), dim=-1)
    assert layer.weight_mask.sum((0, 1, 2)).tolist() == [0, 8]


def test_random_pruning_takes_as_many_as_asked():
    layer = nn.Linear(6, 5)
    prune.random_unstructured(layer, "weight", 0.3)
    assert int((layer.weight_mask == 0).sum()) == 9

    prune.random_structured(layer, "weight", 2, 0)
    assert int((layer.weight_mask.sum(1) == 0).sum()) >= 2


def test_pruning_again_makes_a_container_of_both_methods(layer):
    prune.l1_unstructured(layer, "weight", 0.25)
    prune.ln_structured(layer, "weight", 1, 2, 0)

    (method,) = layer._forward_pre_hooks.values()
    assert isinstance(method, prune.PruningContainer) and len(method) == 2
    assert [type(each) for each in method] == [prune.L1Unstructured, prune.LnStructured]
    assert method[0]._tensor_name == "weight"


def test_a_failed_mask_leaves_the_container_of_before(layer):
    class Failing(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t, default_mask):
            raise RuntimeError("no mask")

    class Odd(Failing):
        PRUNING_TYPE = "odd"

    with pytest.raises(RuntimeError, match="no mask"):
        Failing.apply(layer, "weight")
    assert list(layer.state_dict()) == ["weight", "bias"]
    prune.identity(layer, "weight")
    before = dict(layer._forward_pre_hooks)
    with pytest.raises(RuntimeError, match="no mask"):
        Failing.apply(layer, "weight")
    with pytest.raises(ValueError, match="Unrecognized PRUNING_TYPE odd"):
        Odd.apply(layer, "weight")
    assert dict(layer._forward_pre_hooks) == before


def test_global_pruning_ranks_all_tensors_together(layer):
    other = nn.Linear(3, 1)
    other.weight = nn.Parameter(tenon.tensor([[0.0, 0.1, -2.0]]))

    prune.global_unstructured([(layer, "weight"), (other, "weight")], prune.L1Unstructured, amount=4)
    assert layer.weight.tolist() == [[0, 2, 3, 4], [-4, -3, -2, 0]]
    assert other.weight.tolist() == [[0, 0, -2]]

    prune.global_unstructured(
        [(layer, "weight"), (other, "weight")],
        prune.L1Unstructured,
        importance_scores={(other, "weight"): tenon.tensor([[9.0, 9.0, 9.0]])},
        amount=2,
    )
    assert layer.weight.tolist() == [[0, 0, 3, 4], [-4, -3, 0, 0]]


def test_a_tensor_is_pruned_without_a_module(layer):
    tensor = tenon.tensor([[1.0, 2.0], [3.0, 4.0]])

    pruned = prune.L1Unstructured(1).prune(tensor, tenon.tensor([[1, 1], [1, 0]]))

    assert pruned.tolist() == [[0, 2], [3, 0]]
    assert prune.L1Unstructured(0).prune(tensor).tolist() == tensor.tolist()
    assert prune.LnStructured(0, 2, 0).prune(tensor).tolist() == tensor.tolist()
    assert prune.RandomStructured(0, 0).prune(tensor).tolist() == tensor.tolist()
    assert prune.RandomUnstructured(1.0).prune(tensor).abs().sum() == 0


REFUSED = {
    "a word": (lambda m: prune.l1_unstructured(m, "weight", "half"), TypeError, "Must be int or float"),
    "too large a share": (lambda m: prune.l1_unstructured(m, "weight", 1.5), ValueError, r"range \[0, 1\]"),
    "a negative number": (lambda m: prune.random_unstructured(m, "weight", -1), ValueError, "non-negative"),
    "not a number": (lambda m: prune.l1_unstructured(m, "weight", float("nan")), ValueError, "amount=nan"),
    "more than there are": (lambda m: prune.l1_unstructured(m, "weight", 9), ValueError, "prune=8"),
    "more slices": (lambda m: prune.random_structured(m, "weight", 3, 0), ValueError, "prune=2"),
    "slices of a vector": (lambda m: prune.ln_structured(m, "bias", 1, 2, 0), ValueError, "multidimensional"),
    "no such axis": (lambda m: prune.ln_structured(m, "weight", 1, 2, 5), IndexError, "Invalid index 5"),
    "no such tensor": (lambda m: prune.identity(m, "wait"), AttributeError, "wait"),
    "a plain attribute": (
        lambda m: prune.identity(m, "in_features"),
        (TypeError, AttributeError),
        "in_features",
    ),
    "a mask of another shape": (
        lambda m: prune.custom_from_mask(m, "weight", tenon.ones(3)),
        AssertionError,
        "match",
    ),
    "scores of another shape": (
        lambda m: prune.l1_unstructured(m, "weight", 1, importance_scores=tenon.ones(3)),
        AssertionError,
        "importance_scores should have the same shape",
    ),
    "no pairs": (lambda m: prune.global_unstructured(3, prune.L1Unstructured), TypeError, "not an Iterable"),
    "an empty list": (
        lambda m: prune.global_unstructured([], prune.L1Unstructured),
        ValueError,
        "no parameters",
    ),
    "scores in a list": (
        lambda m: prune.global_unstructured([(m, "weight")], prune.L1Unstructured, [1], amount=1),
        TypeError,
        "must be of type dict",
    ),
    "global slices": (
        lambda m: prune.global_unstructured([(m, "weight")], prune.LnStructured, amount=1, n=2),
        TypeError,
        'Only "unstructured"',
    ),
    "global scores that do not fit": (
        lambda m: prune.global_unstructured(
            [(m, "weight")], prune.L1Unstructured, {(m, "weight"): tenon.ones(3)}, amount=1
        ),
        ValueError,
        "importance scores of 'weight'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_pruned_is_refused_and_changes_nothing(layer, case):
    action, error, message = REFUSED[case]
    before = layer.weight.detach().clone()

    with pytest.raises(error, match=message):
        action(layer)

    assert list(layer.state_dict()) == ["weight", "bias"] and tenon.equal(layer.weight, before)
    assert not layer._forward_pre_hooks


@pytest.mark.parametrize("taken", ["weight_mask", "weight_orig"])
def test_a_name_that_is_taken_is_refused_and_nothing_changes(layer, taken):
    layer.register_buffer(taken, tenon.ones(1))

    with pytest.raises(ValueError, match=f"attribute '{taken}' already exists"):
        prune.l1_unstructured(layer, "weight", 2)

    assert list(layer.state_dict()) == ["weight", "bias", taken] and not layer._forward_pre_hooks
    layer(tenon.ones(1, 4))


def test_what_is_none_cannot_be_pruned():
    with pytest.raises(TypeError, match=r"'bias' of Linear.* is None"):
        prune.identity(nn.Linear(2, 2, bias=False), "bias")


def test_containers_take_methods_of_one_tensor():
    container, method = prune.PruningContainer(), prune.L1Unstructured(1)
    container._tensor_name, method._tensor_name = "weight", "bias"

    with pytest.raises(TypeError, match="is not a BasePruningMethod"):
        container.add_pruning_method(3)
    with pytest.raises(ValueError, match="acting on the parameter named 'weight'"):
        container.add_pruning_method(method)
    with pytest.raises(ValueError, match="same shape as tensor t"):
        method.prune(tenon.ones(2), importance_scores=tenon.ones(3))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_are_pruned_for_themselves(layer, copied):
    prune.l1_unstructured(layer, "weight", 4)
    other = copied(layer)

    prune.remove(layer, "weight")

    assert prune.is_pruned(other) and tenon.equal(other.weight, layer.weight)
    prune.l1_unstructured(other, "weight", 1)
    assert len(next(iter(other._forward_pre_hooks.values()))) == 2


def test_pruning_again_works_after_somebody_removed_all_hooks(layer):
    prune.l1_unstructured(layer, "weight", 2)
    layer._forward_pre_hooks.clear()

    prune.l1_unstructured(layer, "weight", 2)

    assert int((layer.weight == 0).sum()) == 4 and prune.is_pruned(layer)
    prune.remove(layer, "weight")
    assert int((layer.weight == 0).sum()) == 4


def test_what_is_assigned_has_the_shape_of_the_mask(layer):
    prune.l1_unstructured(layer, "weight", 2)
    with pytest.raises(ValueError, match="cannot be stored under the mask 'weight_mask'"):
        layer.weight = tenon.ones(3, 3)
    nn.utils.parametrizations.spectral_norm(layer)
    with pytest.raises(ValueError, match="cannot be stored under the mask 'weight_mask'"):
        layer.weight = tenon.ones(3, 3)

    layer.weight = tenon.ones(2, 4)

    assert tenon.equal(layer.weight_orig, tenon.ones(2, 4))


def test_buffers_can_be_pruned():
    module = nn.Module()
    module.register_buffer("table", tenon.tensor([1.0, -3.0]))

    prune.l1_unstructured(module, "table", 1)

    assert module.table.tolist() == [0, -3]
    prune.remove(module, "table")
    assert module.table.tolist() == [0, -3] and "table" in module._buffers


def test_a_recurrent_layer_runs_with_a_pruned_weight():
    layer = nn.LSTM(3, 4)
    prune.l1_unstructured(layer, "weight_hh_l0", 0.5)
    out, _ = layer(tenon.randn(5, 2, 3))
    out.sum().backward()

    assert ((layer.weight_hh_l0_orig.grad == 0) | (layer.weight_hh_l0_mask == 1)).all()
    prune.remove(layer, "weight_hh_l0")
    assert all(isinstance(weight, nn.Parameter) for weight in layer._flat_weights)


def test_a_compiled_pruned_layer_is_quiet_and_follows_new_masks(layer):
    prune.l1_unstructured(layer, "weight", 2)
    compiled, x = tenon.compile(layer), tenon.ones(1, 4)

    for amount in (0, 2, 2):
        prune.l1_unstructured(layer, "weight", amount)
        assert tenon.allclose(compiled(x), layer(x)) and tenon.allclose(compiled(x), layer(x))
    prune.remove(layer, "weight")
    assert tenon.allclose(compiled(x), layer(x))


def test_a_plugin_offers_a_method_under_its_name(layer):
    from tenon.extend import BasePruningMethod, hookimpl
    from tenon.plugins.manager import host

    class EveryOther(BasePruningMethod):
        PRUNING_TYPE = "global"

        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask[..., ::2] = 0
            return mask

    class Plugin:
        @hookimpl
        def tenon_pruners(self):
            return {"EveryOther": EveryOther}

    plugin = Plugin()
    host().register(plugin, "every-other")
    try:
        prune.EveryOther.apply(layer, "weight")
    finally:
        host().unregister(plugin)

    assert layer.weight.tolist() == [[0, 2, 0, 4], [0, -3, 0, -1]]
    assert not hasattr(prune, "EveryOther")
