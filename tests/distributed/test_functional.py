"""Collectives with gradients: those of the same calculation on one rank, over threads and on real ranks."""

from pathlib import Path

import numpy as np
import pytest

import tenon
import tenon.distributed.nn.functional as F
from tenon.distributed.communication.threaded import run_ranks
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Kind
from tenon.errors import ShapeError, UnsupportedError
from tenon.testing.suites.communicator import launch

SIZE = 3
DRAWS = np.random.default_rng(3).standard_normal((SIZE, SIZE, 2))
WEIGHTS = np.random.default_rng(4).standard_normal((SIZE, SIZE, 2))

#: What rank r computes of the inputs of all ranks ``x[rank]``, and the same as one array ``[rank, ...]`` alone.
CASES = {
    "all_reduce": (lambda x, r: F.all_reduce(x), lambda x: tenon.stack([x.sum(0)] * SIZE)),
    "all_reduce_mean": (lambda x, r: F.all_reduce(x, "mean"), lambda x: tenon.stack([x.mean(0)] * SIZE)),
    "all_reduce_max": (lambda x, r: F.all_reduce(x, "max"), lambda x: tenon.stack([x.amax(0)] * SIZE)),
    "all_reduce_min": (lambda x, r: F.all_reduce(x, "min"), lambda x: tenon.stack([x.amin(0)] * SIZE)),
    "broadcast": (lambda x, r: F.broadcast(x, 1), lambda x: tenon.stack([x[1]] * SIZE)),
    "all_gather": (
        lambda x, r: F.all_gather(x)[2] + F.all_gather(x)[0],
        lambda x: tenon.stack([x[2] + x[0]] * SIZE),
    ),
    "reduce_scatter": (lambda x, r: F.reduce_scatter(x[0], list(x)), lambda x: x.sum(0)),
    "reduce_scatter_mean": (lambda x, r: F.reduce_scatter(x[0], list(x), "mean"), lambda x: x.mean(0)),
    "all_to_all": (
        lambda x, r: tenon.stack(F.all_to_all([x[0]] * SIZE, list(x))),
        lambda x: x.transpose(0, 1),
    ),
    "all_to_all_single": (lambda x, r: F.all_to_all_single(x, x), lambda x: x.transpose(0, 1)),
    "scatter": (lambda x, r: F.scatter(list(x), 1), lambda x: x[1]),
    "reduce": (
        lambda x, r: F.reduce(x, 2, "mean"),
        lambda x: tenon.stack([x[0] * 0, x[0] * 0, x.mean(0)]),
    ),
    "gather": (
        lambda x, r: tenon.stack(F.gather(x, 1)),
        lambda x: tenon.stack([x * 0, x, x * 0]),
    ),
}


def weighted(result, weights):
    return (result * tenon.tensor(np.broadcast_to(weights, tuple(result.shape)).copy())).sum()


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_one_rank(name):
    on_ranks, alone = CASES[name]

    def work(communicator):
        x = tenon.tensor(DRAWS[communicator.rank], requires_grad=True)
        result = on_ranks(x, communicator.rank)
        weighted(result, WEIGHTS[communicator.rank][0]).backward()
        return result.detach().numpy(), x.grad.numpy()

    found = run_ranks(SIZE, work)
    x = tenon.tensor(DRAWS, requires_grad=True)
    expected = alone(x)
    sum(weighted(expected[rank], WEIGHTS[rank][0]) for rank in range(SIZE)).backward()

    np.testing.assert_allclose([values for values, _ in found], expected.detach().numpy())
    np.testing.assert_allclose([gradient for _, gradient in found], x.grad.numpy())


def test_second_derivatives_pass_through():
    def work(communicator):
        x = tenon.tensor([1.0 + communicator.rank], requires_grad=True)
        (first,) = tenon.autograd.grad(F.all_reduce(x).pow(3).sum(), x, create_graph=True)
        (second,) = tenon.autograd.grad(first.sum(), x)
        return first.item(), second.item()

    # Both ranks' losses are (x0 + x1) ** 3, so each derivative counts both.
    assert run_ranks(2, work) == [(2 * 27.0, 4 * 18.0)] * 2


def test_what_has_no_gradient_says_so():
    x = tenon.ones(2, requires_grad=True)
    with pytest.raises(UnsupportedError, match="Sum logarithms"):
        F.all_reduce(x, "prod").sum().backward()
    with pytest.raises(ShapeError, match="one tensor each"):
        F.reduce_scatter(x, [x, x])


def test_interceptors_see_collectives():
    class Listener:
        def run(self, op, args, attrs):
            if op.kind is Kind.COLLECTIVE:
                seen.append(op.name)
            return SLOT.below(self)(op, args, attrs)

    seen, listener = [], Listener()
    x = tenon.ones(2)
    SLOT.push(listener)
    try:
        tenon.distributed.all_reduce(x)
        F.all_gather(x)
    finally:
        SLOT.pop(listener)
    assert seen == ["all_reduce", "all_gather"]


@pytest.mark.slow
@pytest.mark.mpi
def test_collectives_are_replayed_by_compiled_functions():
    done = launch(2, [str(Path(__file__).parent / "programs" / "compiled_collectives.py")])

    assert done.returncode == 0, done.stderr
    assert done.stdout == "same\n"
