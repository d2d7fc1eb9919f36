"""What deterministic="world" costs: a training step of one global batch by data parallel, plain and in 4 shards.

    python tests/bench/deterministic.py                   # 1 rank
    python tests/bench/deterministic.py -n 2 --batch 512
    python tests/bench/deterministic.py -n 2 --sharded          # fully_shard, released after each use (ZeRO-3)
    python tests/bench/deterministic.py -n 2 --sharded --shards 2 --clip

The MLP is 784-512-512-10; the CNN has two convolutions with batch norm, and dropout. AdamW steps, with
--clip after clipping by the norm. Both take the same batch, shared by all ranks. Processor time is the mean over
the ranks, waiting for each other included; wall time means something on an idle machine only.
"""

import time

import numpy as np
import ranks


def network(name):
    """A fresh model of that name and the shape of a sample."""
    from tenon import nn

    if name == "mlp":
        layers = nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        return nn.Sequential(*layers), (784,)
    layers = []
    for before, after in ((3, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Dropout(0.25), nn.Linear(64 * 8 * 8, 10)]
    return nn.Sequential(*layers), (3, 32, 32)


def steps(name, options, communicator):
    """One training step of the whole batch, plain and deterministic."""
    import tenon
    from tenon import nn
    from tenon.distributed.fsdp import fully_shard

    shape = network(name)[1]
    draw = np.random.default_rng(0)
    inputs = tenon.tensor(draw.standard_normal((options.batch, *shape)).astype(np.float32))
    targets = tenon.tensor(draw.integers(0, 10, options.batch))
    rank, size = communicator.rank, communicator.size
    mine = slice(options.batch * rank // size, options.batch * (rank + 1) // size)
    own = inputs[mine], targets[mine]
    done = [0]

    def make(**flags):
        tenon.manual_seed(0)
        model = network(name)[0]
        if options.sharded:
            for layer in model:
                if next(layer.parameters(), None) is not None:
                    fully_shard(layer, reshard_after_forward=True)
            fully_shard(model, reshard_after_forward=True, **flags)
        else:
            model = nn.parallel.DistributedDataParallel(model, **flags)
        return model, tenon.optim.AdamW(model.parameters(), lr=1e-3)

    plain, plain_optimizer = make()
    world, world_optimizer = make(deterministic="world", shards=options.shards, threads=options.threads)

    def clip(model):
        if options.clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def plain_step():
        plain_optimizer.zero_grad()
        nn.functional.cross_entropy(plain(own[0]), own[1]).backward()
        clip(plain)
        plain_optimizer.step()

    def world_step():
        done[0] += 1
        for x, y in world.shards(inputs, targets, step=done[0]):
            world.backward(nn.functional.cross_entropy(world(x), y, reduction="sum"), len(y))
        world.finish()
        clip(world)
        world_optimizer.step()

    return {"plain": plain_step, "deterministic": world_step}


def measure(options):
    """What each rank does."""
    import tenon
    from tenon.distributed import get_communicator

    communicator = get_communicator()
    tenon.set_num_threads(options.threads)
    found = {}
    for name in ("mlp", "cnn"):
        taken = {}
        contestants = steps(name, options, communicator)
        for kind, clock in (("processor", time.process_time), ("wall", time.perf_counter)):
            seconds = ranks.in_turns(
                contestants, options.rounds, options.repeats, communicator.barrier, clock
            )
            best = np.array([min(seconds[key]) for key in contestants])
            taken[kind] = communicator.all_reduce(best, "mean").wait().tolist()
            if communicator.rank == 0:
                before, after = (1e3 * value for value in taken[kind])
                line = f"{name} {kind:9} plain {before:8.2f} ms, deterministic {after:8.2f}"
                print(f"{line}: {after / before:.2f} x", flush=True)
        found[name] = taken
    if communicator.rank == 0:
        ranks.write(options.json, ranks=communicator.size, batch=options.batch, programs=found)


if __name__ == "__main__":
    ranks.main(
        __doc__,
        measure,
        ranks=1,
        batch={"type": int, "default": 256, "help": "of all ranks together"},
        shards={"type": int, "default": 4},
        sharded={"action": "store_true", "help": "fully_shard in place of DistributedDataParallel"},
        clip={"action": "store_true", "help": "clip gradients by their norm"},
        threads={"type": int, "default": 1, "help": "of each rank, in both ways"},
        repeats={"type": int, "default": 5},
    )
