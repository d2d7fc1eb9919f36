"""Activations of a few floats of 16 bits are computed in float32 and rounded once, as PyTorch's are."""

import pytest

import tenon
from tenon.nn import functional as F

NAMES = ("mish", "hardswish", "silu", "gelu", "softplus", "elu", "logsigmoid", "hardsigmoid")


@pytest.mark.parametrize("dtype", [tenon.bfloat16, tenon.float16])
@pytest.mark.parametrize("name", NAMES)
def test_short_values_are_float32s_rounded(name, dtype):
    x = tenon.linspace(-4, 4, 300).to(dtype)

    made = getattr(F, name)(x)

    assert tenon.equal(made, getattr(F, name)(x.float()).to(dtype))


@pytest.mark.parametrize("dtype", [tenon.bfloat16, tenon.float16])
def test_short_gradients_of_hardswish_are_rounded_once(dtype):
    x, g = tenon.linspace(-4, 4, 300).to(dtype).requires_grad_(), tenon.linspace(1, 3, 300).to(dtype)
    wide = x.detach().float().requires_grad_()

    F.hardswish(x).backward(g)
    F.hardswish(wide).backward(g.float())

    assert tenon.equal(x.grad, wide.grad.to(dtype))
