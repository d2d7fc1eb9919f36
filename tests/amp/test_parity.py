"""Every op under autocast gives torch's dtype and value, and sends gradients of torch's dtype back."""

from __future__ import annotations

import numpy as np
import pytest
from autocast_calls import CALLS
from autocast_inputs import Inputs, to_numpy

import tenon

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]

#: Relative tolerance: some roundings of the shorter dtype, which the two order differently.
CLOSE = {"bfloat16": 4e-2, "float16": 5e-3}


def run(package, name, given, target, grad=False):
    inputs = Inputs(package, given, grad=grad)
    with package.autocast("cpu", dtype=getattr(package, target)):
        made = CALLS[name](package, package.nn.functional, inputs)
    return made, inputs.made


@pytest.mark.parametrize("target", ["bfloat16", "float16"])
@pytest.mark.parametrize("short", [False, True], ids=["float32", "short"])
@pytest.mark.parametrize("name", CALLS)
def test_result_is_torchs_in_dtype_and_value(name, short, target):
    given = target if short else "float32"
    try:
        expected, _ = run(torch, name, given, target)
    except RuntimeError as refused:
        pytest.skip(f"torch refuses: {str(refused).splitlines()[0]}")

    made, _ = run(tenon, name, given, target)

    assert str(made.dtype) == str(expected.dtype)
    close = CLOSE[target]
    np.testing.assert_allclose(to_numpy(made), to_numpy(expected), rtol=close, atol=close)


DIFFERENTIABLE = [
    n
    for n in CALLS
    if n
    not in (
        "integers stay", "median", "quantile", "nanquantile", "addition in place", "pinverse", "index_copy",
        "inverse", "linalg.inv", "cholesky", "solve", "cholesky_solve", "svdvals", "eigvalsh", "cdist", "dist",
        "bce", "cross_entropy weighted", "bce with logits weighted", "batch_norm inference",
    )
]  # fmt: skip


@pytest.mark.parametrize("short", [False, True], ids=["float32", "short"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_torchs_in_dtype_and_value(name, short):
    given = "bfloat16" if short else "float32"
    try:
        expected, theirs = run(torch, name, given, "bfloat16", grad=True)
        expected.float().sum().backward()
    except RuntimeError as refused:
        pytest.skip(f"torch refuses: {str(refused).splitlines()[0]}")

    made, ours = run(tenon, name, given, "bfloat16", grad=True)
    made.float().sum().backward()

    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            assert str(a.grad.dtype) == str(b.grad.dtype)
            scale = max(1.0, float(np.abs(to_numpy(b.grad)).max()))
            if name == "layer_norm plain" and short:
                scale = 3.0  # it is 0; torch keeps the statistics in 16 bits
            np.testing.assert_allclose(to_numpy(a.grad), to_numpy(b.grad), rtol=4e-2, atol=4e-2 * scale)
