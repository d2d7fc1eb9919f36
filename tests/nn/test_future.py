"""``tenon.__future__``: new parameters on conversion, kept parameters on assignment."""

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
