"""Methods of several ops on float16 and bfloat16 that are one op in PyTorch compute in float32 and round once.

The expected values are those of the same call in float64, rounded.
"""

import numpy as np
import pytest

import tenon as torch

CALLS = {
    "add": lambda a, b, c: torch.add(a, b, alpha=0.3),
    "sub": lambda a, b, c: torch.sub(a, b, alpha=1.7),
    "rsub": lambda a, b, c: torch.rsub(a, b, alpha=1.7),
    "lerp": lambda a, b, c: torch.lerp(a, b, 0.3),
    "lerp from the end": lambda a, b, c: torch.lerp(a, b, 0.7),
    "lerp by a tensor": torch.lerp,
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.3),
    "linear": lambda a, b, c: torch.nn.functional.linear(a.view(32, 32), b.view(32, 32), c[:32]),
}


@pytest.fixture
def operands():
    rng = np.random.default_rng(0)
    return [torch.from_numpy(3 * rng.standard_normal(1024)) for _ in range(3)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_the_result_is_that_of_float64_rounded(operands, name, dtype):
    short = [each.to(dtype) for each in operands]
    result = CALLS[name](*short)
    exact = CALLS[name](*(each.double() for each in short))
    assert result.dtype is dtype
    differ = (result != exact.to(dtype)).sum().item()
    assert differ <= 0.01 * exact.numel()  # float32 itself rounds, which decides near the middle of two
    ratio = (result.double() - exact).abs().mean() / (exact.to(dtype).double() - exact).abs().mean()
    assert ratio.item() < 1.01


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scaled_products_round_the_product_and_the_sum_only(operands, dtype):
    a, b, c = (each.to(dtype).view(32, 32) for each in operands)
    result = torch.addmm(a, b, c, beta=0.3, alpha=1.3)
    expected = (0.3 * a.double() + 1.3 * (b @ c).double()).to(dtype)
    assert (result != expected).sum().item() <= 0.01 * result.numel()


@pytest.mark.parametrize("name", ["add", "lerp", "addcmul"])
def test_gradients_and_node_names_are_those_of_one_op(operands, name):
    short = [each.to(torch.bfloat16).requires_grad_() for each in operands]
    exact = [each.detach().double().requires_grad_() for each in short]
    result, expected = CALLS[name](*short), CALLS[name](*exact)
    assert result.grad_fn.name() == expected.grad_fn.name() == f"{name.capitalize()}Backward0"
    for each in (result, expected):
        each.sum().backward()
    for one, other in zip(short, exact, strict=True):
        if other.grad is not None:
            torch.testing.assert_close(one.grad, other.grad.to(torch.bfloat16))


def test_sums_in_place_and_compiled_round_once_as_well(operands):
    a, b, _ = (each.to(torch.bfloat16) for each in operands)
    expected = torch.add(a, b, alpha=0.3)
    compiled = torch.compile(lambda x, y: torch.add(x, y, alpha=0.3))(a, b)
    assert torch.equal(compiled, expected)
    assert torch.equal(a.clone().add_(b, alpha=0.3), expected)
    assert torch.equal(torch.add(a, b, alpha=0.3, out=torch.empty_like(a)), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_numbers_that_cannot_scale_the_sum_are_refused(dtype):
    x = torch.ones(2, dtype=dtype)
    with pytest.raises(torch.errors.DTypeError, match=r"argument alpha must not be a complex number"):
        x.add(x, alpha=1j)
    with pytest.raises(torch.errors.DTypeError, match=r"Boolean alpha only supported for Boolean results"):
        x.sub(x, alpha=False)
    with pytest.raises(torch.errors.DTypeError, match=r"cannot be converted to type float.*1j is complex"):
        x.lerp(x, 1j)
    with pytest.raises(torch.errors.DTypeError, match=r"1j is complex"):
        x.addcmul(x, x, value=1j)
    with pytest.raises(torch.errors.DTypeError, match=r"1j is complex"):
        x.addcdiv(x, x, value=1j)
    with pytest.raises(torch.errors.DTypeError, match=r"1j is complex"):
        torch.addmm(x.view(1, 2), x.view(1, 2)[:, :1], x.view(1, 2), alpha=1j)
    assert torch.add(x.to(torch.complex64), x, alpha=1j)[0] == 1 + 1j
