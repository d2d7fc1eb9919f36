"""``autograd.grad`` returns gradients of the dtype of the input, whatever dtype gradient rules compute in."""

import pytest

import tenon
import tenon.nn.functional as F


@pytest.mark.together
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("dtype", [tenon.float16, tenon.bfloat16, tenon.float32])
@pytest.mark.parametrize("function", [F.silu, F.hardswish, F.softplus, F.elu, lambda x: x**0.75])
def test_a_gradient_has_the_dtype_of_its_input(function, dtype, create_graph):
    x = tenon.tensor([0.5, 1.0, 2.0]).to(dtype).requires_grad_()

    (grad,) = tenon.autograd.grad(function(x).sum(), x, create_graph=create_graph)

    assert grad.dtype == dtype
    assert grad.requires_grad or not create_graph


def test_a_power_with_a_number_does_not_widen_the_sweep():
    x = tenon.tensor([0.5, 1.0], requires_grad=True)
    seen = []
    between = x * 2
    between.register_hook(lambda g: seen.append(g.dtype))

    between.pow(0.75).sum().backward()

    assert seen == [tenon.float32]


def test_the_slope_of_a_power_is_zero_where_the_exponent_is():
    x = tenon.tensor([0.0, 0.0, 3.0], requires_grad=True)
    y = tenon.tensor([0.0, 1.0, 2.0])

    (x**y).sum().backward()

    assert x.grad.tolist() == [0.0, 1.0, 6.0]
