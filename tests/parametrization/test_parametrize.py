"""Registering, assigning through, caching and removing parametrizations."""

import copy
import pickle

import pytest

import tenon
from tenon import nn
from tenon.nn.utils import parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T

    def right_inverse(self, weight):
        return weight.triu()


class Double(nn.Module):
    def forward(self, x):
        return 2.0 * x

    def right_inverse(self, weight):
        return 0.5 * weight


class Shift(nn.Module):
    def forward(self, x):
        return x + 1.0


class Halves(nn.Module):
    """Stores two tensors."""

    def forward(self, upper, lower):
        return upper + lower

    def right_inverse(self, weight):
        return weight.triu(), weight.tril(-1)


def made_of(forward, right_inverse=None):
    members = {"forward": lambda self, *tensors: forward(*tensors)}
    if right_inverse is not None:
        members["right_inverse"] = lambda self, weight: right_inverse(weight)
    return type("Made", (nn.Module,), members)()


@pytest.fixture
def layer():
    tenon.manual_seed(0)
    return nn.Linear(3, 3)


def test_the_weight_is_computed_from_what_the_right_inverse_stored(layer):
    weight = layer.weight.detach().clone()

    parametrize.register_parametrization(layer, "weight", Double())

    assert tenon.equal(layer.weight, weight)
    assert tenon.equal(layer.parametrizations.weight.original, weight / 2)
    assert [name for name, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert repr(layer).startswith("ParametrizedLinear(") and type(layer) is nn.Linear


def test_the_optimizer_keeps_its_parameter_through_registering_and_removing(layer):
    optimizer = tenon.optim.SGD(layer.parameters(), lr=0.1)
    parameter = layer.weight
    parametrize.register_parametrization(layer, "weight", Symmetric())

    layer(tenon.ones(1, 3)).sum().backward()
    optimizer.step()
    value = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")

    assert layer.weight is parameter
    assert tenon.equal(layer.weight, value) and tenon.equal(value, value.T)


def test_several_apply_in_order_and_assignment_runs_them_backwards(layer):
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "weight", Double())
    target = tenon.tensor([[2.0, 4.0, 6.0], [4.0, 8.0, 0.0], [6.0, 0.0, 2.0]])

    layer.weight = target

    assert tenon.equal(layer.weight, target)
    assert tenon.equal(layer.parametrizations.weight.original, (target / 2).triu())


def test_what_was_stored_comes_back_without_the_parametrization(layer):
    weight = layer.weight
    before = weight.detach().clone()
    parametrize.register_parametrization(layer, "weight", Shift())

    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)

    assert layer.weight is weight and tenon.equal(weight, before)
    assert not hasattr(layer, "parametrizations") and "_weights" not in layer.__dict__


def test_several_stored_tensors_become_one_parameter_when_baked(layer):
    before = layer.weight.detach().clone()
    parametrize.register_parametrization(layer, "weight", Halves())

    assert sorted(layer.parametrizations.weight._parameters) == ["original0", "original1"]
    with pytest.raises(ValueError, match="leave_parametrized=False"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(layer, "weight")

    assert isinstance(layer.weight, nn.Parameter) and tenon.equal(layer.weight, before)


def test_buffers_stay_buffers_and_stay_out_of_the_state_dict():
    module = nn.Module()
    module.register_buffer("table", tenon.ones(2), persistent=False)

    parametrize.register_parametrization(module, "table", Shift())

    assert module.table.tolist() == [2.0, 2.0] and list(module.state_dict()) == []
    parametrize.remove_parametrizations(module, "table")
    assert module.table.tolist() == [2.0, 2.0] and list(module.state_dict()) == []
    assert "table" in module._buffers


REFUSED = {
    "shape": (lambda x: x[:1], None, "may not change the shape"),
    "dtype": (lambda x: x.double(), None, "may not change the dtype"),
    "no tensor": (lambda x: 2, None, "must return a tensor"),
    "inverse of another dtype": (lambda x: x.float(), lambda w: w.double(), "may not change the dtype"),
    "inverse is None": (lambda x: x, lambda w: None, "Tensor or a Sequence"),
    "inverse with None": (lambda x, y: x, lambda w: (w, None), "element 1 of the sequence"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_and_changes_nothing(layer, case):
    forward, right_inverse, message = REFUSED[case]
    before = layer.weight.detach().clone()

    with pytest.raises(ValueError, match=message):
        parametrize.register_parametrization(layer, "weight", made_of(forward, right_inverse))

    assert not parametrize.is_parametrized(layer) and list(layer.state_dict()) == ["weight", "bias"]
    assert tenon.equal(layer.weight, before)


def test_a_failed_check_gives_the_data_back_that_the_right_inverse_replaced(layer):
    before = layer.weight.detach().clone()

    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(layer, "weight", made_of(lambda x: x[:1], lambda w: w * 3))

    assert tenon.equal(layer.weight, before)


SECOND = {
    "returns two": (lambda x: x, lambda w: (w, w), "right_inverse must return a tensor"),
    "other shape": (lambda x: x, lambda w: w[:1], "must have the same shape"),
    "other dtype": (lambda x: x, lambda w: w.double(), "must have the same dtype"),
    "changes the shape": (lambda x: x[:1], None, "may not change the shape"),
}


@pytest.mark.parametrize("case", SECOND)
def test_a_second_one_that_does_not_fit_leaves_the_first_alone(layer, case):
    forward, right_inverse, message = SECOND[case]
    parametrize.register_parametrization(layer, "weight", Double())

    with pytest.raises(ValueError, match=message):
        parametrize.register_parametrization(layer, "weight", made_of(forward, right_inverse))

    assert len(layer.parametrizations.weight) == 1


def test_unsafe_allows_another_shape_but_not_a_second_one_of_several_tensors(layer):
    parametrize.register_parametrization(layer, "weight", made_of(lambda x: x[:1]), unsafe=True)

    assert layer.weight.shape == (1, 3)
    with pytest.raises(ValueError, match="takes 2 tensors"):
        parametrize.register_parametrization(layer, "weight", Halves(), unsafe=True)


def test_errors_say_what_is_missing(layer):
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "wait", Double())
    with pytest.raises(ValueError, match="does not have a parametrization on bias"):
        parametrize.remove_parametrizations(layer, "bias")
    parametrize.register_parametrization(layer, "weight", Shift())
    with pytest.raises(RuntimeError, match="Shift does not implement right_inverse"):
        layer.weight = tenon.ones(3, 3)
    with pytest.raises(TypeError, match="cannot assign 'int'"):
        layer.weight = 3
    with pytest.raises(AttributeError, match="computed by steps"):
        del layer.weight
    with pytest.raises(RuntimeError, match="no parametrizations of 'bias'"):
        parametrize.transfer_parametrizations_and_params(layer, nn.Linear(2, 2), "bias")
    assert parametrize.transfer_parametrizations_and_params(nn.Linear(2, 2), layer) is layer


def test_a_class_attribute_that_would_hide_the_weight_is_refused():
    class Odd(nn.Module):
        bias = None

        def __init__(self):
            super().__init__()
            self._parameters["bias"] = nn.Parameter(tenon.ones(2))

    with pytest.raises(ValueError, match="the class has an attribute"):
        parametrize.register_parametrization(Odd(), "bias", Shift())


def test_assigning_what_does_not_fit_stores_nothing(layer):
    parametrize.register_parametrization(layer, "weight", Double())
    before = layer.parametrizations.weight.original.detach().clone()

    with pytest.raises(ValueError, match=r"has dtype torch.float64 while `original` has dtype torch.float32"):
        layer.weight = tenon.ones(3, 3, dtype=tenon.float64)

    assert tenon.equal(layer.parametrizations.weight.original, before)


def test_cached_computes_once_until_assigned(layer):
    parametrize.register_parametrization(layer, "weight", Double())

    with parametrize.cached():
        first = layer.weight
        assert layer.weight is first
        with parametrize.cached():
            assert layer.weight is first
        layer.weight = tenon.ones(3, 3)
        assert tenon.equal(layer.weight, tenon.ones(3, 3))

    assert layer.weight is not layer.weight


def test_a_compiled_function_does_not_keep_what_was_cached_around_it(layer):
    parametrize.register_parametrization(layer, "weight", Double())
    compiled = tenon.compile(layer)
    x = tenon.ones(1, 3)

    with parametrize.cached(), tenon.no_grad():
        assert tenon.allclose(compiled(x), layer(x))
        compiled(x)
        layer.parametrizations.weight.original.mul_(3.0)
        fresh = compiled(x)

    assert tenon.allclose(fresh, layer(x))


def test_the_mode_of_the_layer_is_that_of_what_is_registered(layer):
    layer.eval()
    parametrize.register_parametrization(layer, "weight", Double())

    assert not layer.parametrizations.weight[0].training


def test_what_is_stored_can_be_parametrized_in_turn(layer):
    parametrize.register_parametrization(layer, "weight", Shift())
    inner = layer.parametrizations.weight

    parametrize.register_parametrization(inner, "original", Double())

    assert "parametrizations.weight.parametrizations.original.original" in layer.state_dict()
    parametrize.remove_parametrizations(inner, "original")
    assert list(inner._parameters) == ["original"]


def test_transferred_parametrizations_give_the_same_weight(layer):
    parametrize.register_parametrization(layer, "weight", Halves())
    parametrize.register_parametrization(layer, "weight", Double())
    other = nn.Linear(3, 3)

    parametrize.transfer_parametrizations_and_params(layer, other)

    assert tenon.equal(other.weight, layer.weight)
    assert parametrize.type_before_parametrizations(other) is nn.Linear
    assert not parametrize.is_parametrized(other, "bias")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_compute_from_their_own(layer, copied):
    parametrize.register_parametrization(layer, "weight", Double())
    other = copied(layer)

    with tenon.no_grad():
        layer.parametrizations.weight.original.zero_()

    assert layer.weight.abs().sum() == 0 and other.weight.abs().sum() > 0


def test_hooks_see_parametrizations_and_their_gradients(layer):
    parametrize.register_parametrization(layer, "weight", Double())
    seen = []
    layer.parametrizations.weight.register_forward_hook(lambda *_: seen.append("list"))
    layer.parametrizations.weight[0].register_forward_hook(lambda *_: seen.append("forward"))
    layer.parametrizations.weight[0].register_full_backward_hook(lambda *_: seen.append("backward"))

    layer(tenon.ones(1, 3)).sum().backward()

    assert seen == ["forward", "list", "backward"]


def test_a_name_refers_to_what_a_plugin_offers(layer):
    from tenon.extend import hookimpl
    from tenon.plugins.manager import host

    class Plugin:
        @hookimpl
        def tenon_parametrizations(self):
            return {"doubled": Double}

    plugin = Plugin()
    host().register(plugin, "doubled")
    try:
        parametrize.register_parametrization(layer, "weight", "doubled")
    finally:
        host().unregister(plugin)

    assert isinstance(layer.parametrizations.weight[0], Double)


def test_loading_a_plain_checkpoint_says_what_to_do(layer):
    plain = nn.Linear(3, 3).state_dict()
    parametrize.register_parametrization(layer, "weight", Double())
    saved = layer.state_dict()

    with pytest.raises(RuntimeError, match="'weight' is parametrized or pruned in this model"):
        layer.load_state_dict(plain)
    with pytest.raises(RuntimeError, match="'weight' is parametrized or pruned in the checkpoint"):
        nn.Linear(3, 3).load_state_dict(saved)
