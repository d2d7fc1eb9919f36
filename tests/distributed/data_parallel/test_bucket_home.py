"""Gradients of data parallel are written into buckets during backward, large products directly."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.replicas.buckets import Bucket
from tenon.nn.parallel import DistributedDataParallel

ROWS, WIDTH = 80, 144


class Tied(nn.Module):
    """One weight twice, one once, and a bias."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.twice = nn.Parameter(tenon.tensor(rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 12))
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        hidden = nn.functional.linear(nn.functional.linear(x, self.twice), self.twice)
        return self.last(nn.functional.relu(hidden)).square().mean()


def batch(rank, step=0):
    rng = np.random.default_rng(10 * step + rank + 1)
    return tenon.tensor(rng.standard_normal((ROWS, WIDTH)).astype(np.float32))


def expected(state, size, step=0):
    """The mean gradients of all ranks, by one model."""
    model = Tied()
    model.load_state_dict(state)
    (sum(model(batch(rank, step)) for rank in range(size)) / size).backward()
    return [p.grad.numpy() for p in model.parameters()]


def lie_in_buckets(model):
    flats = [bucket.flat for bucket in model.synchronizer.buckets]
    return [any(np.shares_memory(p.grad.raw, flat) for flat in flats) for p in model.parameters()]


def check(model, size, step):
    for parameter, mean in zip(model.parameters(), expected(model.state_dict(), size, step), strict=True):
        np.testing.assert_allclose(parameter.grad.numpy(), mean, rtol=2e-4, atol=1e-6)


def train(communicator, between=lambda model: None, steps=4):
    """Run backward passes, check each, and call ``between`` after each."""
    tenon.manual_seed(1)
    model = DistributedDataParallel(Tied(), process_group=communicator)
    for step in range(steps):
        model(batch(communicator.rank, step)).backward()
        check(model, communicator.size, step)
        between(model)
        model.zero_grad()
    return model


@pytest.mark.parametrize("size", [1, 2, 3])
def test_gradients_are_in_the_bucket_when_hooks_see_them(size):
    def run(communicator):
        seen = []
        tenon.manual_seed(1)
        model = DistributedDataParallel(Tied(), process_group=communicator)
        for step in range(3):
            if step == 2:
                for parameter in model.parameters():
                    parameter.register_post_accumulate_grad_hook(
                        lambda p: seen.append(
                            any(np.shares_memory(p.grad.raw, b.flat) for b in model.synchronizer.buckets)
                        )
                    )
            model(batch(communicator.rank, step)).backward()
            check(model, size, step)
            model.zero_grad()
        return seen

    assert run_ranks(size, run) == [[size > 1] * 3] * size


def test_large_products_are_made_in_the_bucket(monkeypatch):
    pytest.importorskip("tenon_cpu.onednn")
    from tenon_cpu import onednn

    if not onednn.available():
        pytest.skip("oneDNN makes them, and is not installed")
    made, take = [], Bucket.take

    def watched(bucket, index, gradient):
        made.append((bucket.slots[index].name, np.shares_memory(gradient, bucket.flat)))
        return take(bucket, index, gradient)

    monkeypatch.setattr(Bucket, "take", watched)
    run_ranks(2, lambda communicator: train(communicator, steps=2) and None)

    assert set(made) == {("last.weight", True), ("last.bias", False), ("twice", True)}


def test_kept_gradients_keep_their_values():
    def run(communicator):
        kept = []

        def keep(model):
            kept.extend((p.grad, p.grad.numpy().copy()) for p in model.parameters())

        train(communicator, keep)
        return all(np.array_equal(grad.numpy(), copy) for grad, copy in kept)

    assert run_ranks(2, run) == [True, True]


def test_what_a_hook_puts_in_place_of_a_gradient_is_averaged():
    def run(communicator):
        tenon.manual_seed(1)
        model = DistributedDataParallel(Tied(), process_group=communicator)
        for _ in range(2):
            model(batch(communicator.rank)).backward()
            model.zero_grad()

        def replace(parameter):
            parameter.grad = tenon.full(parameter.shape, float(communicator.rank))

        model.module.last.weight.register_post_accumulate_grad_hook(replace)
        model(batch(communicator.rank)).backward()
        return float(model.module.last.weight.grad.min()), float(model.module.last.weight.grad.max())

    assert run_ranks(2, run) == [(0.5, 0.5)] * 2


def test_requested_gradients_are_not_in_the_bucket():
    def run(communicator):
        model = train(communicator)
        asked = tenon.autograd.grad(model(batch(communicator.rank)), list(model.module.parameters()))
        return any(
            np.shares_memory(g.raw, bucket.flat) for g in asked for bucket in model.synchronizer.buckets
        )

    assert run_ranks(2, run) == [False, False]


def test_sums_of_passes_without_sync_are_averaged_where_they_lie():
    def run(communicator):
        model = train(communicator)
        with model.no_sync():
            model(batch(communicator.rank, 0)).backward()
        model(batch(communicator.rank, 1)).backward()
        first, second = (expected(model.state_dict(), communicator.size, step) for step in (0, 1))
        for parameter, a, b in zip(model.parameters(), first, second, strict=True):
            np.testing.assert_allclose(parameter.grad.numpy(), a + b, rtol=2e-4, atol=1e-6)
        return lie_in_buckets(model)

    assert run_ranks(2, run) == [[True] * 3] * 2
