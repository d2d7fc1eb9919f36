"""Statistics and losses of 16-bit floats are computed in float32 and rounded once: no square overflows."""

import numpy as np
import pytest

import tenon
from tenon.nn import functional as F

REDUCTIONS = {
    "var": lambda x: tenon.var(x),
    "var of rows": lambda x: tenon.var(x, 1),
    "std": lambda x: tenon.std(x, 0),
    "var_mean": lambda x: tenon.var_mean(x, 1)[0],
    "std_mean": lambda x: tenon.std_mean(x)[0],
    "norm": lambda x: x[:2].norm(),
    "norm of order 3": lambda x: tenon.linalg.vector_norm(x[:2], 3),
    "logsumexp": lambda x: tenon.logsumexp(x, 1),
    "mse_loss": lambda x: F.mse_loss(x, tenon.zeros_like(x)),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, tenon.zeros_like(x)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, tenon.ones(50), tenon.zeros(50), True),
}


@pytest.fixture(params=["float16", "bfloat16"])
def x(request):
    numbers = (
        np.random.default_rng(0).normal(size=(32, 50)) * 150
    )  # squares reach 200,000, float16 ends at 65,504
    return tenon.tensor(numbers, dtype=getattr(tenon, request.param))


@pytest.mark.together
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("compiles", [False, True], ids=["eager", "compiled"])
def test_results_are_those_of_float32_rounded_once(x, name, compiles):
    reduction = REDUCTIONS[name]
    expected = reduction(x.float()).to(x.dtype)
    if compiles:
        reduction = tenon.compile(reduction)
        reduction(x), reduction(x)

    found = reduction(x)

    assert found.dtype == x.dtype and found.isfinite().all()
    unit = 2**-10 if x.dtype is tenon.float16 else 2**-7
    np.testing.assert_allclose(found.float().numpy(), expected.float().numpy(), rtol=unit, atol=2 * unit)


@pytest.mark.parametrize("name", ["var", "std", "norm", "mse_loss"])
def test_gradients_are_finite_and_those_of_float32(x, name):
    def gradient(x):
        x = x.detach().requires_grad_()
        REDUCTIONS[name](x).float().sum().backward()
        return x.grad.float().numpy()

    expected = gradient(x.float())

    found = gradient(x)

    unit = 2**-9 if x.dtype is tenon.float16 else 2**-6
    np.testing.assert_allclose(found, expected, rtol=4 * unit, atol=unit * np.abs(expected).max())
