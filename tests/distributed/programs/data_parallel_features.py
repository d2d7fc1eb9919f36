"""Train with all that data parallel offers, on uneven shares of the same samples; rank 0 prints the weights.

The numbers do not depend on the number of ranks.
"""

import hashlib

import numpy as np

import tenon
import tenon.distributed as dist
from tenon import nn
from tenon.distributed.algorithms import Join
from tenon.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD
from tenon.distributed.optim import ZeroRedundancyOptimizer
from tenon.nn.functional import cross_entropy
from tenon.nn.parallel import DistributedDataParallel
from tenon.optim import AdamW

RNG = np.random.default_rng(7)
INPUTS, TARGETS = RNG.standard_normal((24, 3)), RNG.integers(0, 4, 24)
TARGETS[[1, 2, 9, 20]] = -100
SHARES = {1: [24], 2: [9, 15], 4: [5, 0, 12, 7]}
rank, size = dist.get_rank(), dist.get_world_size()


def network(norm):
    tenon.manual_seed(rank)  # rank 0 decides
    layers = [nn.Linear(3, 8)] + ([nn.BatchNorm1d(8)] if norm else []) + [nn.Tanh(), nn.Linear(8, 4)]
    return nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(*layers)).to(tenon.float64)


def samples(start, stop):
    return tenon.from_numpy(INPUTS[start:stop]), tenon.from_numpy(TARGETS[start:stop])


def say(label, model):
    """Print the state, and on how many ranks it differs."""
    values = np.concatenate([v.numpy().ravel().astype(np.float64) for v in model.state_dict().values()])
    digests = [None] * size
    dist.all_gather_object(digests, hashlib.sha256(values.tobytes()).hexdigest())
    if rank == 0:
        print(label, len(set(digests)), " ".join(f"{value:.10f}" for value in values))


# Uneven, masked batches with SyncBatchNorm and sharded optimizer state.
model = DistributedDataParallel(network(True))
optimizer = ZeroRedundancyOptimizer(model.named_parameters(), AdamW, lr=0.05)
accumulation = dist.GradientAccumulation(model)
end = sum(SHARES[size][: rank + 1])
for _ in range(6):
    for batches in accumulation.rounds([samples(end - SHARES[size][rank], end)]):
        optimizer.zero_grad()
        for inputs, targets in batches:
            accumulation.backward(*dist.sum_and_count(cross_entropy, model(inputs), targets))
        accumulation.finish()
        optimizer.step()
say("accumulation", model)
optimizer.consolidate_state_dict()
if rank == 0:
    print(
        "state",
        1,
        " ".join(f"{e['exp_avg'].sum().item():.10f}" for e in optimizer.state_dict()["state"].values()),
    )

# Ranks that run out of data: iteration i is made of the first PIECES[i] pieces, dealt to the ranks in turn.
PIECES = [4, 2, 1]
model = DistributedDataParallel(network(False))
optimizer = ZeroRedundancyOptimizer(model.named_parameters(), AdamW, lr=0.05)
with Join([model, optimizer], divide_by_initial_world_size=False):
    for pieces in PIECES:
        if own := range(rank, pieces, size):
            rows = np.concatenate([np.arange(3 * piece, 3 * piece + 3) for piece in own])
            optimizer.zero_grad()
            (model(tenon.from_numpy(INPUTS[rows])).square().mean()).backward()
            optimizer.step()
say("join", model)

# Compiled, SyncBatchNorm sends its statistics anew at every call.
layer, twin = nn.SyncBatchNorm(3), nn.SyncBatchNorm(3)
compiled = tenon.compile(lambda x: layer(x).square().sin().sum())
for call in range(5):
    x = tenon.from_numpy((call + 1 + INPUTS[rank::size]).astype("float32"))
    layer.zero_grad(), twin.zero_grad()
    compiled(x).backward()
    twin(x).square().sin().sum().backward()
    np.testing.assert_allclose(layer.weight.grad.numpy(), twin.weight.grad.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(layer.running_mean.numpy(), twin.running_mean.numpy(), rtol=1e-5)

# A hook that loses nothing at this rank.
model = DistributedDataParallel(network(False))
state = powerSGD.PowerSGDState(
    None, matrix_approximation_rank=4, start_powerSGD_iter=2, min_compression_rate=0.1
)
model.register_comm_hook(state, "powersgd")
for _ in range(5):
    model.zero_grad()
    model(tenon.from_numpy(INPUTS[rank::size])).square().mean().backward()
    with tenon.no_grad():
        for parameter in model.parameters():
            parameter -= 0.05 * parameter.grad
say("powersgd", model)
