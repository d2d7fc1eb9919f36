"""Options of optimizers that PyTorch refuses, in its words; and what follows the default dtype."""

from __future__ import annotations

import inspect
import math

import pytest

import tenon
from tenon import nn, optim


def parameter(dtype=tenon.float32):
    p = nn.Parameter(tenon.ones(2, 2, dtype=dtype))
    p.grad = tenon.ones(2, 2, dtype=dtype)
    return p


@pytest.mark.parametrize("cls", [optim.Adafactor, optim.Muon])
def test_newer_optimizers_want_one_rate_and_real_parameters(cls):
    with pytest.raises(ValueError, match=r"Tensor lr must be 1-element.*\[2\]"):
        cls([parameter()], lr=tenon.tensor([1e-3, 1e-3]))
    with pytest.raises(ValueError, match="Learning rate should be >= 0"):
        cls([parameter()], lr=tenon.tensor(-1e-3))
    optimizer = cls([parameter(tenon.complex64)])
    with pytest.raises(RuntimeError, match="does not support complex"):
        optimizer.step()
    assert not optimizer.state


@pytest.mark.parametrize("cls", [optim.Adam, optim.AdamW])
def test_lists_of_tensors_take_tensor_options_only_where_capturable(cls):
    betas = (tenon.tensor(0.9), tenon.tensor(0.99))
    with pytest.raises(
        ValueError, match="lr as a Tensor is not supported for capturable=False and foreach=True"
    ):
        cls([parameter()], lr=tenon.tensor(0.1), foreach=True)
    with pytest.raises(ValueError, match=r"betas\[0\] as a Tensor is not supported"):
        cls([parameter()], betas=betas, foreach=True)

    cls([parameter()], lr=tenon.tensor(0.1), betas=betas, foreach=True, capturable=True)


def test_steps_are_counted_in_float64_where_that_is_the_default():
    seen = []
    for dtype in (tenon.float64, tenon.float16):
        tenon.set_default_dtype(dtype)
        try:
            p = parameter()
            optimizer = optim.Adam([p])
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
            optimizer.step()
            seen.append((optimizer.state[p]["step"].dtype, optimizer.state[p]["step"].item()))
        finally:
            tenon.set_default_dtype(tenon.float32)

    assert seen == [(tenon.float64, 2.0), (tenon.float32, 2.0)]


def test_lbfgs_goes_through_its_iterations_without_a_gradient_where_told_to():
    p = nn.Parameter(tenon.ones(3))
    optimizer = optim.LBFGS([p], max_iter=2, tolerance_grad=-math.inf)

    loss = optimizer.step(lambda: tenon.tensor([10.0]))

    assert loss.tolist() == [10.0] and p.tolist() == [1.0] * 3


NUMBERS = {
    "lr",
    "eps",
    "weight_decay",
    "momentum",
    "lr_decay",
    "r",
    "warmup_steps",
    "weight_lr_power",
}


def test_numbers_are_real():
    with pytest.raises(TypeError, match="lambd must be a real number, not 1j"):
        tenon.optim.ASGD([tenon.nn.Parameter(tenon.ones(1))], lambd=1j)


def test_numbers_are_not_strings():
    classes = {
        cls
        for cls in (getattr(optim, name) for name in dir(optim))
        if isinstance(cls, type) and issubclass(cls, optim.Optimizer) and cls is not optim.Optimizer
    }
    assert len(classes) > 15
    for cls in classes:
        unchecked = {"eps"} if cls is optim.Muon else set()  # as in PyTorch
        for option in NUMBERS & set(inspect.signature(cls).parameters) - unchecked:
            with pytest.raises((TypeError, ValueError)):
                cls([parameter()], **{"lr": 0.1, option: "3"})


@pytest.mark.parametrize("cls", [optim.SGDScheduleFree, optim.AdamWScheduleFree])
@pytest.mark.parametrize("option", ["r", "warmup_steps", "weight_lr_power"])
def test_weights_of_the_average_are_finite(cls, option):
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=f"Invalid {option} value: {value}"):
            cls([parameter()], **{option: value})
    with pytest.raises(ValueError, match="Invalid warmup_steps value: -1"):
        cls([parameter()], warmup_steps=-1)
