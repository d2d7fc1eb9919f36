"""Variance, log-sum-exp and norms: corner cases and both orders of gradients."""

from __future__ import annotations

import math

import pytest

import tenon
from tenon import ops


def test_log_sum_exp_neither_overflows_nor_loses_infinities():
    x = tenon.tensor([[1000.0, 1000.0], [float("-inf"), float("-inf")], [float("inf"), 0.0]])

    made = x.logsumexp(1).tolist()

    assert made[0] == pytest.approx(1000 + math.log(2))
    assert made[1:] == [float("-inf"), float("inf")]


def test_log_sum_exp_over_nothing_is_minus_infinity():
    assert tenon.zeros(2, 0).logsumexp(1).tolist() == [float("-inf")] * 2


def test_variance_of_one_element_is_nan_unless_uncorrected():
    x = tenon.ones(3, 1)

    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert all(math.isnan(v) for v in x.var(1).tolist())
    assert x.var(1, correction=0).tolist() == [0.0] * 3


@pytest.mark.parametrize("order", [0, 0.5, 1, 2, 3, math.inf, -math.inf])
def test_the_norm_of_zeros_is_zero_with_a_zero_gradient(order):
    x = tenon.zeros(4, dtype=tenon.float64, requires_grad=True)

    norm = x.norm(order)

    assert norm.item() == 0
    if norm.requires_grad and order != 0:
        norm.backward()
        assert not bool(x.grad.any())


@pytest.mark.parametrize(
    "expression",
    [
        lambda x: x.var(1),
        lambda x: x.var((0, 1), correction=0),
        lambda x: x.logsumexp(0),
        lambda x: x.norm(dim=1),
        lambda x: x.norm(3, dim=0, keepdim=True),
        lambda x: x.norm(1),
        lambda x: x.softmax(1),
        lambda x: x.log_softmax(0),
    ],
)
def test_gradients_to_second_order(expression):
    tenon.manual_seed(2)
    x = (tenon.rand(3, 4, dtype=tenon.float64) + 0.5).requires_grad_()

    assert tenon.autograd.gradcheck(expression, (x,))
    assert tenon.autograd.gradgradcheck(expression, (x,))


def test_real_and_imaginary_parts_are_views():
    z = tenon.tensor([1 + 2j, 3 - 1j])

    ops.real(z)[0] = 9.0

    assert z.tolist() == [9 + 2j, 3 - 1j]
    assert ops.imag(z).tolist() == [2.0, -1.0]
