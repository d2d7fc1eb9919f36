"""``fused=True``: the parameters it takes, and the scaled gradients that mixed-precision loops leave to it."""

from __future__ import annotations

import pytest

import tenon
from tenon import nn, optim


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_scaled_gradients_are_divided_and_infinite_ones_skip_the_step(name):
    p, q = (nn.Parameter(tenon.tensor([1.0, 2.0])) for _ in range(2))
    p.grad, q.grad = tenon.tensor([4.0, -8.0]), tenon.tensor([1.0, -2.0])
    fused, plain = getattr(optim, name)([p], lr=0.1, fused=True), getattr(optim, name)([q], lr=0.1)
    fused.grad_scale = tenon.tensor([4.0])

    fused.found_inf = tenon.tensor(1.0)
    fused.step()
    assert p.tolist() == [1.0, 2.0] and p.grad.tolist() == [4.0, -8.0]

    fused.found_inf = tenon.tensor(0.0)
    fused.step()
    plain.step()
    assert p.tolist() == q.tolist() and p.grad.tolist() == [1.0, -2.0]


@pytest.mark.parametrize("name", ["Adam", "Adagrad"])
def test_parameters_without_memory_are_refused_until_they_have_some(name):
    with tenon.device("meta"):
        model = nn.Linear(3, 2)
    optimizer = getattr(optim, name)(model.parameters(), fused=True)
    for p in model.parameters():
        p.grad = tenon.zeros_like(p)

    with pytest.raises(
        RuntimeError, match=r"`fused=True` requires all the params to be floating point.*meta"
    ):
        optimizer.step()

    model.to_empty(device="cpu")
    optimizer = getattr(optim, name)(model.parameters(), fused=True)
    before = nn.init.ones_(model.bias).tolist()
    model.bias.grad = tenon.ones(2)
    optimizer.step()
    assert model.bias.tolist() < before and optimizer.state[model.bias]["step"] == 1


def test_complex_parameters_are_refused():
    p = nn.Parameter(tenon.ones(2, dtype=tenon.complex64))
    p.grad = tenon.ones(2, dtype=tenon.complex64)

    with pytest.raises(RuntimeError, match=r"floating point Tensors.*complex64"):
        optim.SGD([p], fused=True).step()
