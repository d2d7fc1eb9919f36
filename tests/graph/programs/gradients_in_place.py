"""Compiled data-parallel steps between eager ones; rank 0 prints the gradients that were kept."""

import json

import numpy as np

import tenon
import tenon.distributed as dist
from tenon import nn, optim
from tenon.nn import functional as F
from tenon.nn.parallel import DistributedDataParallel

rank = dist.get_rank()


def batch(rows, seed):
    rng = np.random.default_rng(100 * seed + rank)
    return [tenon.tensor(rng.standard_normal((rows, columns)).astype(np.float32)) for columns in (6, 3)]


def make(to_none):
    tenon.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad(set_to_none=to_none)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def lies_in_bucket(model):
    buckets = model.synchronizer.buckets
    return all(any(np.shares_memory(p.grad.raw, b.flat) for b in buckets) for p in model.parameters())


def train(kept_of, to_none):
    """Six steps compiled (the first three run eagerly), one eager, one compiled; gradients of one are kept."""
    model, step = make(to_none)
    compiled = tenon.compile(step)
    kept = {}
    for number in range(8):
        (step if number == 6 else compiled)(*batch(4, number))
        if number == kept_of:
            kept = {p: (p.grad, p.grad.clone()) for p in model.parameters()}
    found = {
        "programs": len(compiled.programs),
        "in the bucket": lies_in_bucket(model),
        "kept": all(bool((grad == copy).all()) for grad, copy in kept.values()),
        "weights": [p.tolist() for p in model.parameters()],
    }
    model, step = make(to_none)
    for number in range(8):
        step(*batch(4, number))
    return {**found, "eager": [p.tolist() for p in model.parameters()]}


found = [train(6, True), train(1, True), train(None, False)]
everywhere = [None] * dist.get_world_size()
dist.all_gather_object(everywhere, found)
if rank == 0:
    print(json.dumps(everywhere))
