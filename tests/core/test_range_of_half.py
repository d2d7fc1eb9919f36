"""Gradients and results of float16 that are representable do not overflow in an intermediate."""

import numpy as np
import pytest

import tenon
from tenon.nn import functional as F

CALLS = {
    "addcmul": lambda x, y: x.addcmul(2 * x, 2 * y, value=0.1),
    "cdist": lambda x, y: tenon.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
    "fmod": lambda x, y: tenon.fmod(x, tenon.tensor(0.3, dtype=tenon.float16).to(x.dtype) + 0 * y),
    "gelu": lambda x, y: F.gelu(2 * x, approximate="tanh"),
    "linear_cross_entropy": lambda x, y: F.linear_cross_entropy(
        x, y, tenon.tensor([0, 1, 2, 3]), options=tenon.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    ),
}


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice differentiable"])
@pytest.mark.parametrize("name", CALLS)
def test_results_and_gradients_are_those_of_float32(name, again):
    numbers = np.random.default_rng(1).normal(size=(2, 4, 3)).clip(-1.5, 1.5) * 150

    def run(dtype):
        leaves = [tenon.tensor(n.astype(np.float16), dtype=dtype, requires_grad=True) for n in numbers]
        y = CALLS[name](*leaves)
        return [y, *tenon.autograd.grad(y.float().sum(), leaves, create_graph=again, allow_unused=True)]

    for found, expected in zip(run(tenon.float16), run(tenon.float32), strict=True):
        if expected is not None:
            assert found.dtype == tenon.float16
            found, expected = found.float().detach().numpy(), expected.detach().numpy()
            np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3 * np.abs(expected).max())
