"""Uneven, masked and accumulated batches: gradients of the mean over all samples of all ranks and passes."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.distributed import GradientAccumulation, sum_and_count
from tenon.distributed.communication.threaded import run_ranks
from tenon.errors import CommunicatorError
from tenon.nn import Module, Parameter
from tenon.nn.functional import cross_entropy, mse_loss, nll_loss
from tenon.nn.parallel import DistributedDataParallel

RNG = np.random.default_rng(5)
INPUTS, TARGETS = RNG.standard_normal((23, 3)), RNG.integers(0, 4, 23)
TARGETS[[0, 1, 2, 5, 11]] = -100  # masked


class Scores(Module):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.first = Parameter(tenon.from_numpy(rng.standard_normal((3, 5))))
        self.second = Parameter(tenon.from_numpy(rng.standard_normal((5, 4))))
        self.register_buffer("calls", tenon.zeros(1))

    def forward(self, x):
        with tenon.no_grad():
            self.calls += 1
        return (x @ self.first).sin() @ self.second


def batches_of(shares):
    """For each rank the batches, given by their sizes, of consecutive samples."""
    ends = np.cumsum([size for share in shares for size in share]).tolist()
    pieces = iter(zip([0, *ends], ends, strict=False))
    return [
        [
            (tenon.from_numpy(INPUTS[a:b]), tenon.from_numpy(TARGETS[a:b]))
            for a, b in _next(pieces, len(share))
        ]
        for share in shares
    ]


def _next(iterator, count):
    return [next(iterator) for _ in range(count)]


def whole(count):
    model = Scores()
    loss = cross_entropy(model(tenon.from_numpy(INPUTS[:count])), tenon.from_numpy(TARGETS[:count]))
    loss.backward()
    return loss.item(), [p.grad.numpy() for p in model.parameters()]


@pytest.mark.parametrize("wrap", [DistributedDataParallel, lambda model: model], ids=["wrapped", "plain"])
@pytest.mark.parametrize(
    "shares",
    [
        [[23]],
        [[4, 1, 18]],
        [[3], [20]],  # all samples of rank 0 are masked
        [[5, 2], [9, 7]],
        [[], [10, 13]],
        [[1, 2, 3], [4], [], [6, 7]],
    ],
    ids=str,
)
def test_gradients_are_those_of_the_mean_over_all_unmasked_samples(shares, wrap):
    batches = batches_of(shares)

    def work(communicator):
        model = wrap(Scores())
        accumulation = GradientAccumulation(model, steps=3)
        losses = []
        for round_ in accumulation.rounds(batches[communicator.rank]):
            for inputs, targets in round_:
                accumulation.backward(*sum_and_count(cross_entropy, model(inputs), targets))
            losses.append(accumulation.finish())
        return losses, [p.grad.numpy().copy() for p in model.parameters()]

    loss, gradients = whole(sum(map(sum, shares)))
    for losses, found in run_ranks(len(shares), work):
        assert losses == [pytest.approx(loss, rel=1e-12)]
        for got, expected in zip(found, gradients, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


def test_ranks_with_different_numbers_of_batches_make_the_same_steps():
    batches = batches_of([[2, 3, 1], [4], []])

    def work(communicator):
        model = DistributedDataParallel(Scores())
        accumulation = GradientAccumulation(model, steps=2)
        sizes = []
        for round_ in accumulation.rounds(batches[communicator.rank]):
            model.zero_grad()
            for inputs, targets in round_:
                accumulation.backward(*sum_and_count(cross_entropy, model(inputs), targets))
            sizes.append(len(round_))
            if accumulation.finish() is None:
                continue
            with tenon.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.5 * parameter.grad
        return sizes, model.module.second.detach().numpy().copy(), model.module.calls.item()

    results = run_ranks(3, work)

    model = Scores()
    for rows in ([0, 1, 2, 3, 4, 6, 7, 8, 9], [5]):
        model.zero_grad()
        loss = cross_entropy(
            model(tenon.from_numpy(INPUTS[rows])), tenon.from_numpy(TARGETS[rows]), reduction="sum"
        )
        if (TARGETS[rows] == -100).all():
            break
        (loss / int((TARGETS[rows] != -100).sum())).backward()
        with tenon.no_grad():
            for parameter in model.parameters():
                parameter -= 0.5 * parameter.grad
    assert [sizes for sizes, _, _ in results] == [[2, 1], [1, 0], [0, 0]]
    for _, weight, calls in results:
        np.testing.assert_allclose(weight, model.second.detach().numpy(), rtol=1e-10)
        assert calls == results[0][2]  # buffers follow rank 0


def test_a_step_without_any_sample_returns_none_and_leaves_no_gradient():
    def work(communicator):
        model = Scores()
        accumulation = GradientAccumulation(model)
        masked = tenon.from_numpy(np.full(2, -100))
        accumulation.backward(*sum_and_count(cross_entropy, model(tenon.from_numpy(INPUTS[:2])), masked))
        return accumulation.finish(), model.first.grad, accumulation.finish()

    assert run_ranks(2, work) == [(None, None, None)] * 2


def test_impossible_counts_are_refused():
    accumulation = GradientAccumulation(Scores())
    loss = Scores()(tenon.from_numpy(INPUTS)).sum()

    with pytest.raises(CommunicatorError, match="count=-1"):
        accumulation.backward(loss, -1)
    with pytest.raises(CommunicatorError, match="count=nan"):
        accumulation.backward(loss, float("nan"))
    with pytest.raises(CommunicatorError, match="steps=0"):
        GradientAccumulation(Scores(), steps=0)


def test_every_kind_of_loss_says_what_it_is_the_mean_of():
    outputs, targets = tenon.from_numpy(RNG.standard_normal((6, 4))), tenon.from_numpy(TARGETS[:6])
    values = tenon.from_numpy(RNG.standard_normal((6, 4)))

    for loss, target, expected in [
        (cross_entropy, targets, 2),
        (nll_loss, targets, 2),
        (cross_entropy, outputs.softmax(1), 6),
        (mse_loss, values, 6),
        (nn.MSELoss(), values, 6),
        (lambda o, t: ((o - t).square().sum(), 10), values, 10),
    ]:
        total, count = sum_and_count(loss, outputs, target)
        mean = loss(outputs, target)
        mean = mean[0] / mean[1] if isinstance(mean, tuple) else mean
        assert count == expected
        assert (total / count).item() == pytest.approx(mean.item(), rel=1e-12)


def test_scaled_losses_give_the_same_mean_and_an_overflow_is_left_out_on_all_ranks():
    batches = batches_of([[], [10, 13]])

    def work(communicator):
        model = Scores().float()
        scaler = tenon.amp.GradScaler("cpu", init_scale=1024.0)
        optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)
        accumulation = GradientAccumulation(model, steps=2, scaler=scaler)
        losses = []
        for spoiled in (False, True):
            optimizer.zero_grad()
            for inputs, targets in batches[communicator.rank]:
                with tenon.autocast("cpu", dtype=tenon.float16):
                    total, count = sum_and_count(cross_entropy, model(inputs.float()), targets)
                accumulation.backward(total * (1e38 if spoiled else 1.0), count)
            losses.append(accumulation.finish())
            scaler.step(optimizer)
            if not spoiled:
                gradients = [p.grad.numpy().copy() for p in model.parameters()]
                stepped = [p.detach().numpy().copy() for p in model.parameters()]
            scaler.update()
        kept = [
            np.array_equal(p.detach().numpy(), w) for p, w in zip(model.parameters(), stepped, strict=True)
        ]
        return losses[0], gradients, kept, scaler.get_scale()

    loss, gradients = whole(23)
    for found, means, kept, scale in run_ranks(2, work):
        assert found == pytest.approx(loss, abs=2e-2)
        for mine, theirs in zip(means, gradients, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-2)
        assert kept == [True, True] and scale == 512.0


def test_layers_of_cross_entropy_leave_out_what_their_functions_do():
    scores, targets = tenon.randn(4, 3, requires_grad=True), tenon.tensor([0, 2, -100, 1])
    wanted, count = sum_and_count(cross_entropy, scores, targets)

    total, counted = sum_and_count(tenon.nn.CrossEntropyLoss(), scores, targets)
    nothing, none = sum_and_count(tenon.nn.CrossEntropyLoss(), scores, tenon.full((4,), -100))

    assert (counted, none) == (count, 0) == (3, 0)
    assert total.item() == pytest.approx(wanted.item())
    assert nothing.item() == 0
    with pytest.raises(RuntimeError, match="class weights"):
        sum_and_count(tenon.nn.CrossEntropyLoss(tenon.ones(3)), scores, targets)
