"""Copies, pickles and conversions of whole modules."""

import copy
import pickle
import subprocess
import sys

import pytest

import tenon
from tenon import nn
from tenon.errors import TenonError


class Affine(nn.Module):
    def __init__(self, inputs=2, outputs=3):
        super().__init__()
        self.weight = nn.Parameter(tenon.ones(outputs, inputs))
        self.register_parameter("bias", None)
        self.register_buffer("calls", tenon.zeros(1))
        self.register_buffer("scratch", tenon.zeros(1), persistent=False)
        self.plain = [1]

    def forward(self, x):
        return x @ self.weight.t()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Affine()
        self.tied = self.first
        self.weight = self.first.weight

    def forward(self, x):
        return self.first(x)


class OwnState(Affine):
    """A module with state methods of its own, which do not use the registries."""

    def __getstate__(self):
        state = self.__dict__.copy()
        del state["plain"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.plain = ["again"]


def twins(module):
    return {
        "deepcopy": copy.deepcopy(module),
        "pickle": pickle.loads(pickle.dumps(module)),
        "copy": copy.copy(module),
    }


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "copy"])
def test_a_copy_has_registries_of_its_own(how):
    module = Net()
    twin = twins(module)[how]

    twin.first = replaced = Affine()
    twin.weight = nn.Parameter(tenon.zeros(1))
    del twin.tied

    assert twin._modules == {"first": replaced}
    assert module.first is not replaced and module.tied is module.first
    assert module.weight is module.first.weight


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_deep_copy_keeps_sharing_inside_and_shares_nothing_outside(how):
    module = Net()
    twin = twins(module)[how]

    twin.weight.data.fill_(9)

    assert twin.tied is twin.first
    assert twin.weight is twin.first.weight
    assert twin.first.weight.tolist() == [[9.0, 9.0]] * 3
    assert module.weight.tolist() == [[1.0, 1.0]] * 3
    assert twin.first.plain == [1] and twin.first.plain is not module.first.plain


def test_a_shallow_copy_holds_the_same_tensors():
    module = Affine()
    twin = copy.copy(module)

    assert twin.weight is module.weight and twin.plain is module.plain


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "copy"])
def test_state_methods_of_a_subclass_keep_working(how):
    twin = twins(OwnState())[how]

    twin.weight = other = nn.Parameter(tenon.zeros(1))
    twin.calls = tenon.ones(4)

    assert twin.plain == ["again"]
    assert twin._parameters["weight"] is other
    assert dict(twin.named_buffers())["calls"].shape == (4,)
    assert "scratch" not in twin.state_dict()


def test_pickled_state_holds_every_tensor_once():
    state = Affine().__getstate__()

    assert "weight" not in state and "calls" not in state
    assert set(state["_parameters"]) == {"weight", "bias"}


def test_a_gradient_is_copied_with_neither_form_of_copy():
    module = Affine()
    module(tenon.ones(1, 2)).sum().backward()

    assert copy.deepcopy(module).weight.grad is None


# Conversion.


def test_to_keeps_the_identity_of_parameters_and_converts_their_gradients():
    module = Affine()
    module(tenon.ones(1, 2)).sum().backward()
    weight, grad = module.weight, module.weight.grad

    assert module.double() is module

    assert module.weight is weight and weight.dtype is tenon.float64
    assert weight.grad is grad and grad.dtype is tenon.float64
    module(tenon.ones(1, 2, dtype=tenon.float64)).sum().backward()
    assert weight.grad.tolist() == [[2.0, 2.0]] * 3


def test_to_casts_floating_members_only():
    module = Affine()
    module.register_buffer("count", tenon.zeros(1, dtype=tenon.int64))

    module.half()

    assert module.calls.dtype is tenon.float16 and module.scratch.dtype is tenon.float16
    assert module.count.dtype is tenon.int64


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.to(tenon.float64),
        lambda m: m.to("cpu", tenon.float64),
        lambda m: m.to(device="cpu", dtype=tenon.float64),
        lambda m: m.to(tenon.ones(1, dtype=tenon.float64)),
        lambda m: m.to(other=tenon.ones(1, dtype=tenon.float64)),
        lambda m: m.to(tenon.float64, non_blocking=True),
        lambda m: m.type(tenon.float64),
        lambda m: m.type("torch.DoubleTensor"),
    ],
)
def test_every_form_of_to(call):
    assert call(Affine()).weight.dtype is tenon.float64


def test_to_refuses_integers_and_unknown_arguments_and_changes_nothing():
    module = Affine()

    with pytest.raises(
        TypeError, match=r"only accepts floating point or complex dtypes, but got desired dtype=torch.int64"
    ):
        module.to(tenon.int64)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'color'"):
        module.to(color="red")
    with pytest.raises(TenonError, match=r"Invalid device string|no backend"):
        module.to("no such device")
    with pytest.raises(TenonError, match=r"xpu"):
        module.xpu()
    assert module.weight.dtype is tenon.float32


def test_meta_modules_need_to_empty():
    module = Net().to("meta")

    assert module.weight.device.type == "meta"
    with pytest.raises(NotImplementedError, match=r"use torch.nn.Module.to_empty\(\) instead"):
        module.to("cpu")
    module.to_empty(device="cpu")
    assert module.weight.device.type == "cpu" and module.weight.shape == (3, 2)
    assert module.weight.requires_grad
    assert module.first.weight is module.weight


def test_to_empty_without_recurse_leaves_the_children():
    module = Net().to("meta")

    module.to_empty(device="cpu", recurse=False)

    assert module.first.calls.device.type == "meta"


def test_requires_grad_and_zero_grad_reach_every_parameter():
    module = Net()
    module(tenon.ones(1, 2)).sum().backward()
    grad = module.weight.grad

    module.zero_grad(set_to_none=False)
    assert module.weight.grad is grad and grad.tolist() == [[0.0, 0.0]] * 3
    module.zero_grad()
    assert module.weight.grad is None
    assert module.requires_grad_(False) is module
    assert not module.weight.requires_grad


@pytest.mark.filterwarnings("ignore:Using backward")
def test_zero_grad_detaches_a_gradient_with_history():
    module = Affine()
    module(tenon.ones(1, 2)).pow(2).sum().backward(create_graph=True)

    module.zero_grad(set_to_none=False)

    assert module.weight.grad.grad_fn is None
    assert not module.weight.grad.requires_grad


FORKED = """
import os
from tenon import nn

module = nn.BatchNorm1d(3).share_memory()
parameter = module.weight
child = os.fork()
if child == 0:
    parameter.raw[...] = 7.0
    module.running_mean.raw[...] = 5.0
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(parameter.tolist(), module.running_mean.tolist())
"""


def test_share_memory_moves_all_members_in_place():
    module = Affine()
    parameter, values = module.weight, module.weight.tolist()

    assert not parameter.is_shared()
    assert module.share_memory() is module
    assert all(each.is_shared() for each in (*module.parameters(), *module.buffers()))
    assert module.weight is parameter and parameter.tolist() == values and parameter.requires_grad


@pytest.mark.slow
def test_a_forked_process_changes_a_module_that_shares_memory():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED]  # fork() beside threads
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert run.stdout.strip() == "[7.0, 7.0, 7.0] [5.0, 5.0, 5.0]", run.stderr


def test_share_memory_keeps_values_and_layout():
    x = tenon.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    strides = x.stride()

    y = x.clone().share_memory_()

    assert y.is_shared() and not x.is_shared()
    assert y.tolist() == x.tolist()
    assert y.stride() == x.clone().stride() == strides
    assert y[1:].is_shared() and y.share_memory_() is y
    assert not tenon.ones(0).share_memory_().is_shared()
