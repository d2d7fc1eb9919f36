"""Train with deterministic="world" in the ways given, e.g. ``50 ddp zero3 hybrid``; print the digests of weights."""

import hashlib
import sys

import numpy as np

import tenon as torch
import tenon.distributed as dist
from tenon import nn
from tenon.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from tenon.distributed.fsdp.wrap import ModuleWrapPolicy
from tenon.distributed.optim import ZeroRedundancyOptimizer
from tenon.distributed.tensor import Shard
from tenon.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from tenon.nn.parallel import DistributedDataParallel
from tenon.utils.checkpoint import checkpoint

RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((150, 5)).astype(np.float32)
TARGETS = RNG.integers(0, 3, 150)
TARGETS[RNG.random(150) < 0.2] = -100  # masked
WORLD = {"deterministic": "world", "shards": 8}


class Block(nn.Module):
    """Sizes that no number of ranks divides, and a parameter that has fewer elements than there are ranks."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(width), nn.Dropout(0.2)
        wide = 3 * width + width % 2
        self.up, self.down = nn.Linear(width, wide), nn.Linear(wide, width)
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, x):
        hidden = self.down(nn.functional.gelu(self.up(self.norm(x))))
        return x + self.drop(hidden) * self.gain.mean()


class Net(nn.Module):
    """Calls a block twice, draws from the generator, and leaves parameters unused in some and in all shards."""

    def __init__(self, width=13, recompute=False):
        super().__init__()
        self.first, self.last = nn.Linear(5, width), nn.Linear(width, 3)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.sometimes, self.never = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2))
        self.recompute = recompute

    def forward(self, x):
        hidden = self.first(x + 0.1 * torch.rand(1, dtype=x.dtype))
        for block in (*self.blocks, self.blocks[0]):
            hidden = checkpoint(block, hidden, use_reentrant=False) if self.recompute else block(hidden)
        out = self.last(hidden)
        return out + self.sometimes if float(x[0, 0]) > 0 else out


def build(**options):
    torch.manual_seed(0)
    return Net(**options)


def shard(model, **options):
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options, **WORLD)


def replicated(model):
    return DistributedDataParallel(model, find_unused_parameters=True, **WORLD)


def wrapped(strategy):
    policy = ModuleWrapPolicy({Block})
    return FullyShardedDataParallel(build(), auto_wrap_policy=policy, sharding_strategy=strategy, **WORLD)


def two_dimensions():
    """Two replicas; on one rank one."""
    size = dist.get_world_size()
    return dist.init_device_mesh("cpu", (2, size // 2) if size > 1 else (1, 1))


def tensor_parallel():
    """Blocks split in two, and sharded over the other ranks."""
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    model = build(width=16)
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return shard(model, mesh=mesh["dp"])


MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
WAYS = {
    "ddp": lambda: replicated(build()),
    "zero1": lambda: replicated(build()),
    "zero2": lambda: shard(build(), reshard_after_forward=False),
    "zero3": lambda: shard(build(), reshard_after_forward=True),
    "pairs": lambda: shard(build(), reshard_after_forward=2),
    "hybrid": lambda: shard(build(), mesh=two_dimensions()),
    "axis": lambda: shard(build(), shard_placement_fn=lambda p: Shard(p.ndim - 1)),
    "offload": lambda: shard(build(), offload_policy=CPUOffloadPolicy()),
    "wrapper": lambda: wrapped(ShardingStrategy.FULL_SHARD),
    "wrapper-ddp": lambda: wrapped(ShardingStrategy.NO_SHARD),
    "recompute": lambda: shard(build(recompute=True), reshard_after_forward=True),
    "recompute-ddp": lambda: replicated(build(recompute=True)),
    "mixed": lambda: shard(build(), reshard_after_forward=True, mp_policy=MIXED),
    "tensor": tensor_parallel,
    "compiled": lambda: replicated(build()),
    "compiled-zero3": lambda: shard(build(), reshard_after_forward=True),
}


def digest_of(way, steps):
    """The digest of the state after ``steps`` of AdamW with clipping, and of the last mean loss."""
    model = WAYS[way]()
    if way == "zero1":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if not way.startswith("compiled"):
        return digest(model, train(model, optimizer, 0, steps, model))
    optimizer.step = torch.compile(optimizer.step)
    call = torch.compile(model.module if way == "compiled" else model)
    return digest(model, train(model, optimizer, 0, steps, call))


def train(model, optimizer, first, last, call):
    """Train from step ``first`` to ``last`` by calls of ``call``; return the last mean loss."""
    order = np.random.default_rng(1)
    for step in range(last):
        rows = order.integers(0, 150, 48 if step % 3 else 37)
        if step < first:
            continue
        batch = torch.from_numpy(INPUTS[rows]), torch.from_numpy(TARGETS[rows])
        for x, y in model.shards(*batch, step=step):
            loss, count = dist.sum_and_count(nn.functional.cross_entropy, call(x), y)
            model.backward(loss, count)
        mean = model.finish()
        nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
    return mean


def digest(model, mean):
    """The digest of all weights, buffers and ``mean``."""
    found = hashlib.sha256(np.float64(mean).tobytes())
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        found.update(name.encode() + whole.numpy().tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    for way in sys.argv[2:]:
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, digest_of(way, int(sys.argv[1])))
        if dist.get_rank() == 0:
            print(way, *sorted(set(found)), flush=True)
