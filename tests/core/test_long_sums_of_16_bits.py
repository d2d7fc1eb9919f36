"""Sums of thousands of float16 and bfloat16 numbers do not stop growing at 2048 and 256: they are summed in float32."""

import pytest

import tenon
import tenon.nn.functional as F

N = 3000
ZEROS = tenon.zeros(N, dtype=tenon.int64)


def gradient(function, x):
    x = x.detach().requires_grad_()
    return tenon.autograd.grad(function(x).float().sum(), x)[0]


#: Each sums N ones: as its result, or as the gradient of its operand.
RESULTS = {
    "cumsum": lambda one: one.expand(N).contiguous().cumsum(0)[-1:],
    "cumsum of rows": lambda one: one.expand(2, N).contiguous().cumsum(1)[:, -1],
    "sum_to": lambda one: one.expand(N, 40).contiguous().sum_to_size(40),
    "sum_to of one number": lambda one: one.expand(N).contiguous().sum_to_size(1),
    "scatter_add": lambda one: tenon.zeros(1).to(one.dtype).scatter_add(0, ZEROS, one.expand(N)),
    "scatter_reduce": lambda one: tenon.zeros(1).to(one.dtype).scatter_reduce(0, ZEROS, one.expand(N), "sum"),
    "index_add": lambda one: tenon.zeros(1).to(one.dtype).index_add(0, ZEROS, one.expand(N)),
    "embedding_bag": lambda one: F.embedding_bag(ZEROS, one.reshape(1, 1), tenon.tensor([0]), mode="sum")[0],
    "logcumsumexp": lambda one: (one - 1).expand(N).contiguous().logcumsumexp(0)[-1:].float().exp(),
    "fold": lambda one: (
        F.fold(one.expand(1, 50, 50).contiguous(), (1, 99), (1, 50))[0, 0, 0, 49:50] * (N / 50)
    ),
}
GRADIENTS = {
    "expand": lambda x: x.expand(N),
    "bias": lambda x: tenon.ones(N, 1).to(x.dtype) + x,
    "prelu": lambda x: F.prelu(-tenon.ones(N).to(x.dtype), x) * -1,
    "gather": lambda x: x.gather(0, ZEROS),
    "index": lambda x: x[ZEROS],
    "repeat": lambda x: x.repeat(N),
    "as_strided": lambda x: x.as_strided((N,), (0,)),
    "grid_sample": lambda x: F.grid_sample(
        x.expand(1, 1, 1, 1), tenon.zeros(1, N, 1, 2).to(x.dtype), align_corners=False
    ),
}


@pytest.mark.parametrize("dtype", [tenon.float16, tenon.bfloat16], ids=str)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_results_are_sums_of_all(dtype, compiled):
    one = tenon.ones(1).to(dtype)
    for name, function in RESULTS.items():
        run = tenon.compile(function) if compiled else function
        for _ in range(4 if compiled else 1):
            result = run(one)
        assert result.float().tolist() == pytest.approx([N] * result.numel(), rel=0.02), name


@pytest.mark.parametrize("dtype", [tenon.float16, tenon.bfloat16], ids=str)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_gradients_are_sums_of_all(dtype, compiled):
    for name, function in GRADIENTS.items():
        if compiled and name == "as_strided":
            continue  # depends on the memory layout, which a compiled function chooses itself
        run = tenon.compile(function) if compiled else function
        for _ in range(4 if compiled else 1):
            found = gradient(run, tenon.ones(1).to(dtype))
        assert found.item() == pytest.approx(N, rel=0.02), name


@pytest.mark.parametrize("dtype", [tenon.float16, tenon.bfloat16], ids=str)
def test_means_of_losses_divide_by_the_count(dtype):
    x, target = tenon.zeros(N, 3).to(dtype), tenon.zeros(N, dtype=tenon.int64)
    for function, slope in (
        (lambda x: F.nll_loss(x, target), -1),
        (lambda x: F.nll_loss(x, target, weight=tenon.ones(3).to(dtype)), -1),
        (lambda x: F.cross_entropy(x, target, weight=tenon.ones(3).to(dtype)), -2 / 3),
        (lambda x: F.cross_entropy(x, target, weight=tenon.ones(3).to(dtype), label_smoothing=0.1), -0.6),
    ):
        assert gradient(function, x)[0, 0].item() * N == pytest.approx(slope, rel=0.02)


def test_weighted_bags_do_not_overflow_before_they_are_summed():
    table = tenon.tensor([[300.0], [-300.0]], dtype=tenon.float16)
    weights = tenon.tensor([300.0, 300.0], dtype=tenon.float16)

    bag = F.embedding_bag(
        tenon.tensor([0, 1]), table, tenon.tensor([0]), mode="sum", per_sample_weights=weights
    )

    assert bag.tolist() == [[0.0]] and bag.dtype == tenon.float16
