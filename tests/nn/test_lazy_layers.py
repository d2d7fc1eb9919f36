"""Lazy layers take their sizes from the first input and become ordinary layers."""

import copy
import pickle

import pytest

import tenon
from tenon import nn
from tenon.nn.parameter import UninitializedParameter

CASES = [
    (lambda: nn.LazyLinear(3), nn.Linear, (2, 5), (3, 5)),
    (lambda: nn.LazyConv1d(4, 3, groups=2), nn.Conv1d, (2, 6, 8), (4, 3, 3)),
    (lambda: nn.LazyConv2d(4, 3, bias=False), nn.Conv2d, (2, 6, 8, 8), (4, 6, 3, 3)),
    (lambda: nn.LazyConv2d(4, 3), nn.Conv2d, (6, 8, 8), (4, 6, 3, 3)),
    (lambda: nn.LazyBatchNorm1d(), nn.BatchNorm1d, (2, 7), (7,)),
    (lambda: nn.LazyBatchNorm2d(affine=True, bias=False), nn.BatchNorm2d, (2, 7, 3, 3), (7,)),
]


@pytest.mark.parametrize(("make", "plain", "size", "weight"), CASES)
def test_a_lazy_layer_becomes_the_layer_it_is_named_after(make, plain, size, weight):
    layer = make()
    assert layer.has_uninitialized_params()

    layer(tenon.ones(*size))

    assert type(layer) is plain
    assert tuple(layer.weight.shape) == weight
    assert all(tenon.isfinite(p).all() for p in layer.parameters())


@pytest.mark.parametrize("carry", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_lazy_layer_can_be_copied_and_pickled_before_its_first_call(carry):
    layer = nn.LazyLinear(3)

    other = carry(layer)
    other(tenon.ones(2, 5))

    assert isinstance(layer.weight, UninitializedParameter)
    assert type(other) is nn.Linear and other.in_features == 5


def test_a_lazy_layer_draws_the_numbers_of_the_plain_one():
    tenon.manual_seed(3)
    lazy = nn.LazyLinear(4)
    lazy(tenon.ones(1, 6))
    tenon.manual_seed(3)
    plain = nn.Linear(6, 4)

    assert tenon.equal(lazy.weight, plain.weight)
    assert tenon.equal(lazy.bias, plain.bias)


def test_values_loaded_before_the_first_call_stay():
    plain, lazy = nn.Linear(5, 3), nn.LazyLinear(3)

    lazy.load_state_dict(plain.state_dict())
    lazy(tenon.ones(1, 5))

    assert tenon.equal(lazy.weight, plain.weight)
    assert type(lazy) is nn.Linear and lazy.in_features == 5


def test_loading_an_uninitialized_checkpoint_says_what_to_do():
    state = nn.LazyLinear(3).state_dict()

    with pytest.raises(
        RuntimeError, match=r"size mismatch for weight: Can't access the shape.*Call that module once"
    ):
        nn.Linear(5, 3).load_state_dict(state)
    assert nn.LazyLinear(3).load_state_dict(state).missing_keys == []


def test_memory_of_lazy_parameters_cannot_be_shared():
    with pytest.raises(RuntimeError, match="share memory on an uninitialized"):
        nn.Sequential(nn.Linear(1, 1), nn.LazyLinear(3)).share_memory()


def test_wrong_inputs_of_a_lazy_convolution_are_refused():
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input"):
        nn.LazyConv2d(4, 3)(tenon.ones(2, 2))
    with pytest.raises(ValueError, match="divisible by groups: 5 and 2"):
        nn.LazyConv2d(4, 3, groups=2)(tenon.ones(1, 5, 4, 4))


def test_threshold_of_integers_stays_integer():
    x = tenon.tensor([-1, 0, 2])

    assert nn.functional.threshold(x, 0, 9).dtype == tenon.int64
    assert nn.functional.threshold(x, 0, 9).tolist() == [9, 9, 2]


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_the_older_norms_refuse_a_weight_without_a_shape(norm):
    layer = nn.LazyLinear(3)

    with pytest.raises(ValueError, match="can't have uninitialized parameters"):
        norm(layer)

    layer(tenon.ones(2, 5))
    assert norm(layer).weight.shape == (3, 5)
