"""Numbers, lists, None, strings and arrays in tensors' places are TypeErrors as in torch, in every function.

All 12,370 calls are made by hand: ``python tests/parity/wrong_arguments.py``.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from parity.wrong_arguments import calls, compared, described

import tenon
import tenon.nn.functional as F
from tenon import Tensor, nn
from tenon.errors import TenonError
from tenon.tensors.wrong_arguments import guard

ONES = tenon.ones(2, 2)


def differences(some):
    found = ((call, compared(*call)) for call in some)
    return [described(call, difference) for call, difference in found if difference]


@pytest.mark.oracle
def test_some_wrong_arguments_are_refused_as_in_torch():
    pytest.importorskip("torch")

    assert not differences(itertools.islice(calls(), 3, None, 199))


@pytest.mark.slow
@pytest.mark.oracle
def test_more_wrong_arguments_are_refused_as_in_torch():
    pytest.importorskip("torch")

    assert not differences(itertools.islice(calls(), 1, None, 2))


def test_the_error_names_function_argument_position_and_type():
    calls_of = {
        "relu(): argument 'input' (position 1) must be Tensor, not int": lambda: F.relu(3),
        "relu_(): argument 'input' (position 1) must be Tensor, not int": lambda: F.relu_(3),
        "softmax(): argument 'input' (position 1) must be Tensor, not list": lambda: F.softmax([1.0], 0),
        "gelu(): argument 'input' (position 1) must be Tensor, not numpy.ndarray": lambda: F.gelu(np.ones(2)),
        "dropout(): argument 'input' (position 1) must be Tensor, not float": lambda: F.dropout(0.5),
        "linear(): argument 'weight' (position 2) must be Tensor, not NoneType": lambda: F.linear(ONES, None),
        "conv1d(): argument 'input' (position 1) must be Tensor, not str": lambda: F.conv1d("x", ONES),
        "mse_loss(): argument 'target' (position 2) must be Tensor, not int": lambda: F.mse_loss(ONES, 3),
        "where() takes a condition, or a condition, input and other: one of these is None": lambda: (
            tenon.where(ONES > 0, ONES, None)
        ),
        "add_(): argument 'other' (position 1) must be Tensor, not list": lambda: ONES.add_([1.0, 2.0]),
        "add(): argument 'other' (position 2) must be Tensor, not list": lambda: tenon.add(ONES, [1.0, 2.0]),
        "cat(): argument 'tensors' (position 1) must be tuple of Tensors, not int": lambda: tenon.cat(3),
        "expected Tensor as element 1 in argument 0, but got int": lambda: tenon.meshgrid(ONES[0], 3),
        "softmax(): argument 'dim' (position 1) must be int, not str": lambda: ONES.softmax("x"),
        "softmax(): argument 'dim' (position 2) must be int, not list": lambda: F.softmax(ONES, [0]),
        "sum(): argument 'dim' (position 1) must be tuple of ints, not dict": lambda: ONES.sum({}),
        "full(): argument 'fill_value' (position 2) must be Number, not object": lambda: tenon.full(
            (2,), object()
        ),
        "ones(): argument 'dtype' must be torch.dtype, not float": lambda: tenon.ones(2, dtype=1.5),
        "can_cast(): argument 'to' (position 2) must be torch.dtype, not list": lambda: tenon.can_cast(
            tenon.int8, ["int8"]
        ),
        "tril(): argument 'diagonal' (position 1) must be int, not str": lambda: ONES.tril("x"),
        "requires_grad_(): argument 'requires_grad' (position 1) must be bool, not str": lambda: tenon.ones(
            2
        ).requires_grad_("no"),
        "can't assign a object to a torch.FloatTensor": lambda: tenon.ones(2).__setitem__(0, object()),
        "expected a tensor or a number, got str": lambda: tenon.result_type(ONES, "x"),
    }

    for message, call in calls_of.items():
        with pytest.raises(TypeError) as raised:
            call()
        assert str(raised.value) == message


def test_a_layer_says_which_it_is():
    with pytest.raises(TypeError, match=r"relu\(\): argument 'input' \(position 1\) must be Tensor, not int"):
        nn.ReLU()(3)


def test_errors_of_right_arguments_and_of_classes_that_override_functions_stay():
    class Overriding:
        __torch_function__ = None

    def function(x: Tensor, y: Tensor | None = None):
        raise ValueError("its own")

    guard((function,))

    for right in (ONES, Overriding()):
        with pytest.raises(ValueError, match="its own"):
            function(right)
    with pytest.raises(TypeError, match=r"function\(\): argument 'y' \(position 2\) must be Tensor, not int"):
        function(ONES, 3)


def test_a_number_that_is_too_large_ends_the_call_at_once():
    x, largest = tenon.tensor([0.5, 6.0]), 2**63 - 1

    for call in (
        lambda: tenon.tensor_split(x, largest), lambda: tenon.vander(x, largest), lambda: x.mvlgamma(largest),
        lambda: tenon.linalg.vander(x, N=2**70), lambda: tenon.linspace(0, 2**70, 3),
        lambda: tenon.special.hermite_polynomial_h(x, largest),
        lambda: tenon.special.laguerre_polynomial_l(x, tenon.tensor([3, largest])),
    ):  # fmt: skip
        with pytest.raises((ValueError, OverflowError)):
            call()
    assert tenon.polygamma(171, x[:1]).isinf().all() and not tenon.polygamma(largest, x).isfinite().any()


def test_a_tensor_with_one_element_may_stand_for_an_axis():
    assert ONES.sum(dim=tenon.tensor(1)).tolist() == [2.0, 2.0] == ONES.sum(dim=range(1, 2)).tolist()


def test_dtypes_and_shapes_without_a_result_are_refused_in_words_of_the_function():
    whole, single = tenon.ones(2, 2, dtype=tenon.int32), tenon.tensor(1.0)
    calls_of = {
        "Expected a floating point or complex tensor": lambda: tenon.linalg.ldl_factor(whole),
        "\"rms_norm\" not implemented for 'Int'": lambda: F.rms_norm(whole, (2,)),
        "adds real weights, not torch.complex64": lambda: tenon.bincount(whole[0], ONES[0] * 1j),
        "weight should have 3 dimensions": lambda: F.conv_transpose1d(ONES, single),
        "input should have at least 2 dimensions": lambda: F.instance_norm(single),
    }

    for message, call in calls_of.items():
        with pytest.raises(TenonError, match=message):
            call()
