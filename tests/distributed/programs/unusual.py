"""Unusual shares of data and models, on as many ranks as there are: what comes of each, as JSON from rank 0.

A result is a list of numbers; the same program on one rank says what they should be.
"""

import contextlib
import hashlib
import json
import sys
import warnings

import numpy as np

import tenon
import tenon.distributed as dist
from tenon.distributed import DistributedSampler, GradientSynchronizer, ShardedSampler
from tenon.nn import Module, Parameter
from tenon.nn.parallel import DistributedDataParallel

DATA = np.random.default_rng(7).standard_normal((24, 3))
TARGET = DATA @ np.array([[1.0], [-2.0], [0.5]])
RANK, SIZE = dist.get_rank(), dist.get_world_size()


class Net(Module):
    def __init__(self, seed=0, extra=False):
        super().__init__()
        random = np.random.default_rng(seed)
        self.first = Parameter(tenon.tensor(random.standard_normal((3, 8))))
        self.second = Parameter(tenon.tensor(random.standard_normal((8, 1))))
        if extra:
            self.extra = Parameter(tenon.tensor(np.ones(1)))

    def forward(self, x, extra=False):
        found = (x @ self.first).tanh() @ self.second
        return found * self.extra if extra else found


def descend(model):
    with tenon.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.05 * parameter.grad


def loss_of(model, rows, **options):
    return (model(tenon.tensor(DATA[rows]), **options) - tenon.tensor(TARGET[rows])).square().mean()


def values(model):
    """The weights, after making sure that all ranks have the same bits."""
    weights = np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])
    digests = [None] * SIZE
    dist.all_gather_object(digests, hashlib.sha256(weights.tobytes()).hexdigest())
    assert len(set(digests)) == 1
    return weights.tolist()


def shards_of(samples):
    """Train on the first ``samples``, shared as ``ShardedSampler`` does; ranks without any join in."""
    model = Net()
    synchronizer = GradientSynchronizer(model.named_parameters())
    sampler = ShardedSampler(range(samples))
    for _ in range(5):
        model.zero_grad()
        mine = list(sampler)
        if mine:
            loss_of(model, mine).backward()
        synchronizer.synchronize(weight=len(mine))
        descend(model)
    return values(model)


def shares(model, options_of=lambda rank: {}):
    """Train a data parallel model on equal shares of all samples; its weights and the warnings."""
    parallel = DistributedDataParallel(model)
    said = []
    for _ in range(5):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            parallel.zero_grad()
            if SIZE > 1:
                loss_of(parallel, slice(RANK, None, SIZE), **options_of(RANK)).backward()
            else:
                three = [loss_of(parallel, slice(rank, None, 3), **options_of(rank)) for rank in range(3)]
                (sum(three) / 3).backward()
        descend(model)
        said += [str(one.message) for one in caught]
    return values(model), said


def some_ranks():
    model = Net(extra=True)
    found, said = shares(model, lambda rank: {"extra": rank == 1})
    if SIZE > 1:
        assert len(said) == (RANK == 0) and all("extra" in one for one in said), said
    return found


def unused():
    model = Net(extra=True)
    found, said = shares(model)
    assert model.extra.grad is None
    assert len(said) <= 1 and all("extra" in one for one in said), said
    return found


def larger_world():
    assert len(list(DistributedSampler(range(2)))) == -(-2 // SIZE)
    lengths = [None] * SIZE
    dist.all_gather_object(lengths, len(list(ShardedSampler(range(2)))))
    assert sum(lengths) == 2
    return shards_of(2)


def caught():
    with contextlib.suppress(SystemExit):
        sys.exit(3)
    with contextlib.suppress(SystemExit):
        raise SystemExit(3)
    dist.barrier()
    return []


found = {
    "uneven": shards_of(22),
    "empty": shards_of(1),
    "larger_world": larger_world(),
    "three": shares(Net())[0],
    "some_ranks": some_ranks(),
    "unused": unused(),
    "seeds": shares(Net(seed=RANK))[0],
    "caught": caught(),
}
if RANK == 0:
    print(json.dumps(found))
