"""Fused kernels whose outputs share memory with their inputs."""

import pytest

import tenon
from tenon import ops


@pytest.mark.parametrize("value", [2.0, 0.1, 0.0])
def test_gradients_of_nested_choices_follow_the_branch_that_a_replay_takes(value):
    tenon.manual_seed(0)
    weight = (tenon.randn(6, 6) * 0.3).requires_grad_()

    def gradient(chosen):
        inner = ops.where(ops.gt(chosen, 0.0), ops.matmul(weight, weight), weight)
        outer = ops.where(ops.gt(chosen, 1.0), ops.matmul(inner, inner), inner)
        return tenon.autograd.grad(outer.square().sum(), weight)[0]

    compiled = tenon.compile(gradient)
    for _ in range(4):
        compiled(tenon.tensor(0.5))

    assert tenon.allclose(compiled(tenon.tensor(value)), gradient(tenon.tensor(value)))
