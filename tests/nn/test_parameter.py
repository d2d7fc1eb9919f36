"""Parameter, Buffer, and their uninitialised forms."""

import copy
import pickle

import pytest

import tenon
from tenon import nn
from tenon.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy


def test_parameter_shares_memory_with_its_tensor_and_counts_its_changes():
    data = tenon.ones(2)
    parameter = nn.Parameter(data)
    squared = parameter * parameter

    data.fill_(3)

    assert parameter.tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation"):
        squared.sum().backward()


def test_parameter_is_a_leaf_that_requires_grad_also_without_grad_mode():
    with tenon.no_grad():
        parameter = nn.Parameter(tenon.ones(2, requires_grad=True) * 2)

    assert parameter.is_leaf and parameter.requires_grad
    assert not nn.Parameter(tenon.ones(1), requires_grad=False).requires_grad
    assert nn.Parameter().shape == (0,)


def test_parameter_refuses_what_is_not_a_tensor_or_cannot_have_a_gradient():
    with pytest.raises(TypeError, match=r"takes a Tensor, not list"):
        nn.Parameter([1.0])
    with pytest.raises(RuntimeError, match=r"only Tensors of floating point"):
        nn.Parameter(tenon.ones(1, dtype=tenon.int64))
    assert nn.Parameter(tenon.ones(1, dtype=tenon.int64), requires_grad=False).dtype is tenon.int64


def test_results_of_operations_are_plain_tensors():
    parameter = nn.Parameter(tenon.ones(2))

    for result in (parameter + 1, parameter.detach(), parameter.data, parameter[0], parameter.clone()):
        assert type(result) is tenon.Tensor


def test_parameter_prints_what_it_contains():
    assert repr(nn.Parameter(tenon.ones(2))) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    assert repr(nn.Parameter(tenon.ones(1), False)) == "Parameter containing:\ntensor([1.])"


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_are_parameters_of_their_own(twin_of):
    parameter = nn.Parameter(tenon.ones(2), requires_grad=False)

    twin = twin_of(parameter)
    parameter.fill_(5)

    assert type(twin) is nn.Parameter
    assert twin.tolist() == [1.0, 1.0]
    assert twin.requires_grad is False


def test_subclass_of_parameter_survives_a_copy():
    twin = copy.deepcopy(Special(tenon.ones(1)))

    assert type(twin) is Special
    assert type(pickle.loads(pickle.dumps(twin))) is Special


class Special(nn.Parameter):
    pass


def test_deepcopy_keeps_sharing():
    parameter = nn.Parameter(tenon.ones(1))

    first, second = copy.deepcopy([parameter, parameter])

    assert first is second is not parameter


def test_buffer_says_whether_it_is_persistent_also_in_copies():
    buffer = nn.Buffer(tenon.ones(2), persistent=False)

    for twin in (buffer, copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        assert isinstance(twin, nn.Buffer)
        assert twin.persistent is False
        assert not twin.requires_grad
    assert repr(buffer) == "tensor([1., 1.])"


def test_uninitialised_parameter_refuses_to_be_used_before_it_has_a_shape():
    parameter = UninitializedParameter(dtype=tenon.float64)

    assert is_lazy(parameter) and parameter.requires_grad
    assert parameter.dtype is tenon.float64
    assert repr(parameter) == "<UninitializedParameter>"
    with pytest.raises(ValueError, match=r"Attempted to use an uninitialized parameter"):
        parameter + 1
    with pytest.raises(RuntimeError, match=r"Can't access the shape of an uninitialized parameter"):
        _ = parameter.shape
    with pytest.raises(RuntimeError, match=r"Can't share memory"):
        parameter.share_memory_()


def test_materialized_parameter_is_an_ordinary_one():
    parameter = UninitializedParameter()

    parameter.materialize((2, 3))

    assert type(parameter) is nn.Parameter
    assert parameter.shape == (2, 3) and parameter.requires_grad and parameter.dtype is tenon.float32
    (parameter * 0).sum().backward()
    assert parameter.grad.shape == (2, 3)


def test_uninitialised_buffer_becomes_a_buffer():
    buffer = UninitializedBuffer(persistent=False)
    buffer.materialize(4, dtype=tenon.float64)

    assert type(buffer) is nn.Buffer
    assert buffer.shape == (4,) and buffer.dtype is tenon.float64 and not buffer.requires_grad


def test_uninitialised_parameters_copy_and_pickle():
    parameter = UninitializedParameter(requires_grad=False, dtype=tenon.float64)

    for twin in (copy.deepcopy(parameter), pickle.loads(pickle.dumps(parameter))):
        assert is_lazy(twin) and twin.dtype is tenon.float64 and not twin.requires_grad


class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(tenon.full((size,), 2.0))

    def forward(self, x):
        return x * self.weight


class LazyScale(nn.modules.lazy.LazyModuleMixin, Scale):
    cls_to_become = Scale

    def __init__(self):
        super().__init__(0)
        self.weight = UninitializedParameter()

    def initialize_parameters(self, x):
        with tenon.no_grad():
            self.size = x.shape[-1]
            self.weight.materialize((self.size,))
            self.weight.fill_(3.0)


def test_lazy_module_learns_its_size_from_the_first_input():
    module = LazyScale().double()
    assert module.has_uninitialized_params()
    assert repr(module.state_dict()["weight"]) == "<UninitializedParameter>"

    out = module(tenon.ones(2, 4, dtype=tenon.float64))

    assert type(module) is Scale and module.size == 4
    assert out.tolist() == [[3.0] * 4] * 2
    assert module.weight.dtype is tenon.float64
    assert not module._forward_pre_hooks and not module._load_state_dict_pre_hooks


def test_lazy_module_takes_its_shape_from_a_state_dict():
    module = LazyScale()

    module.load_state_dict(Scale(3).state_dict())

    assert module.weight.tolist() == [2.0, 2.0, 2.0]
    assert not module.has_uninitialized_params()


def test_lazy_module_is_lazy_again_after_a_failed_load():
    net = nn.Sequential(LazyScale(), Scale(2))
    state = nn.Sequential(Scale(3), Scale(9)).state_dict()

    with pytest.raises(RuntimeError, match=r"size mismatch for 1.weight"):
        net.load_state_dict(state)

    assert net[0].has_uninitialized_params()
    assert net[0](tenon.ones(5)).shape == (5,)


def test_an_uninitialised_parameter_cannot_be_loaded_into_an_initialised_one():
    with pytest.raises(RuntimeError, match=r"the shape of an uninitialized parameter"):
        Scale(2).load_state_dict(LazyScale().state_dict())
