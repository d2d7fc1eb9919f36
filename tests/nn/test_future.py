"""``tenon.__future__``: new parameters on conversion, kept parameters on assignment."""

import weakref

import pytest

import tenon
from tenon import __future__ as future
from tenon import nn


@pytest.fixture(autouse=True)
def restore():
    yield
    future.set_overwrite_module_params_on_conversion(False)
    future.set_swap_module_params_on_conversion(False)


def test_conversion_keeps_parameters_unless_told_to_overwrite_them():
    layer = nn.Linear(2, 2)
    layer(tenon.ones(1, 2)).sum().backward()
    before = layer.weight

    assert layer.double().weight is before
    future.set_overwrite_module_params_on_conversion(True)
    layer.float()

    assert layer.weight is not before
    assert before.dtype == tenon.float64 and before.grad.dtype == tenon.float64
    assert layer.weight.dtype == tenon.float32 and layer.weight.grad.dtype == tenon.float32


def test_assigning_a_state_dict_keeps_parameters_if_told_to_swap():
    with tenon.device("meta"):
        layer = nn.Linear(2, 2)
    state = nn.Linear(2, 2).state_dict()
    before = layer.weight

    future.set_swap_module_params_on_conversion(True)
    layer.load_state_dict(state, assign=True)

    assert layer.weight is before
    assert layer.weight.requires_grad
    assert tenon.equal(layer.weight, state["weight"])


def test_a_failed_swap_leaves_the_module_as_it_was():
    layer = nn.Linear(2, 2)
    state = {"weight": tenon.zeros(2, 2), "bias": tenon.zeros(3)}
    future.set_swap_module_params_on_conversion(True)
    before = layer.weight.tolist()

    with pytest.raises(RuntimeError, match="size mismatch for bias"):
        layer.load_state_dict(state, assign=True)

    assert layer.weight.tolist() == before


class Tagged(tenon.Tensor):
    """Takes over what is loaded into it in a class of its own."""

    def module_load(self, other, assign=False):
        if other.numel() and other.max() > 99:
            return other  # not detached: an error
        made = other.detach().as_subclass(Tagged)
        made.source = "assigned" if assign else "copied"
        return made


def test_a_class_says_what_is_loaded_into_it():
    future.set_swap_module_params_on_conversion(True)
    module = nn.Module()
    module.register_buffer("kept", tenon.zeros(2).as_subclass(Tagged))
    before = module.kept

    module.load_state_dict({"kept": tenon.tensor([1.0, 2.0])})

    assert module.kept is before and type(before) is Tagged
    assert (before.source, before.tolist()) == ("copied", [1.0, 2.0])
    with pytest.raises(RuntimeError, match="returned one of self or other"):
        module.load_state_dict({"kept": tenon.tensor([100.0, 2.0])})
    assert module.kept.tolist() == [1.0, 2.0]


def test_swapped_tensors_keep_who_they_are_and_exchange_what_they_are():
    first, second = nn.Parameter(tenon.ones(2)), tenon.zeros(3)
    second.note = "mine"
    holder = [first, second]

    tenon.utils.swap_tensors(first, second)

    assert holder[0] is first and type(first) is tenon.Tensor
    assert (first.note, first.tolist(), first.requires_grad) == ("mine", [0, 0, 0], False)
    assert isinstance(second, nn.Parameter) and second.requires_grad and not hasattr(second, "note")
    lazy, plain = nn.UninitializedParameter(), nn.Parameter(tenon.ones(2))
    tenon.utils.swap_tensors(lazy, plain)
    assert lazy.tolist() == [1, 1] and nn.parameter.is_lazy(plain)


def test_tensors_that_are_held_weakly_or_have_other_slots_are_not_swapped():
    class One(tenon.Tensor):
        __slots__ = ("one",)

    held, free = tenon.ones(2), tenon.ones(2)
    reference = weakref.ref(held)

    with pytest.raises(RuntimeError, match="t2 because it has weakref"):
        tenon.utils.swap_tensors(free, held)
    with pytest.raises(RuntimeError, match=r"different slots.*\['one'\]"):
        tenon.utils.swap_tensors(free, One(2))
    assert reference() is held


def test_conversion_by_swapping_keeps_parameters_and_exchanges_what_they_hold():
    layer = nn.Linear(2, 2)
    layer.weight.grad = tenon.ones(2, 2)
    layer.weight.note = "gone with what it was put on"
    before, gradient = layer.weight, layer.weight.grad
    held = before._cdata, gradient._cdata

    assert layer.double().weight._cdata == held[0]
    future.set_swap_module_params_on_conversion(True)
    layer.half()

    assert layer.weight is before and before.grad is gradient
    assert before.dtype == gradient.dtype == tenon.float16
    assert before._cdata != held[0] and gradient._cdata != held[1]
    assert not hasattr(before, "note")
    reference = weakref.ref(before)
    with pytest.raises(RuntimeError, match=r"_apply\(\): Couldn't swap Linear.weight.*weakref"):
        layer.float()
    assert reference() is before and before.dtype == tenon.float16


def test_what_leaves_the_meta_device_is_a_new_parameter_that_tied_modules_share():
    with tenon.device("meta"):
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    before = net[0].weight

    net.to_empty(device="cpu")

    assert before.device.type == "meta" and net[0].weight is not before
    assert net[1].weight is net[0].weight
    assert net[0].weight.device.type == "cpu" and net[0].weight.requires_grad
    future.set_swap_module_params_on_conversion(True)
    kept = net[0].weight
    assert net.to("meta")[0].weight is kept and kept.device.type == "meta"
