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
