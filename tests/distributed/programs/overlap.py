"""Between (simulated) nodes full buckets start while backward goes on; the gradients are the same bits."""

import numpy as np

import tenon
from tenon import nn
from tenon.distributed import get_communicator
from tenon.nn.parallel import DistributedDataParallel

communicator = get_communicator()
x = tenon.tensor(np.random.default_rng(communicator.rank).standard_normal((8, 64)).astype(np.float32))


calls = []
start = communicator.start_all_reduce


def counting(array, op, name=None):
    calls.append(name)
    return start(array, op, name=name)


communicator.start_all_reduce = counting


def gradients(overlaps):
    communicator.overlaps = overlaps
    tenon.manual_seed(0)
    layers = [nn.Linear(64, 64) for _ in range(6)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.02)
    found, started = [], []
    layers[0].weight.register_hook(lambda gradient: started.append(len(calls)) or None)
    for _ in range(3):
        model.zero_grad()
        calls.clear()
        model(x).square().mean().backward()
        found.append(np.concatenate([p.grad.numpy().ravel() for p in model.parameters()]))
    return np.stack(found), all(started[1:])  # the first backward tells the order of the buckets


with_overlap, started = gradients(True)
without, _ = gradients(False)
same = communicator.all_reduce(np.array([(with_overlap == without).all() and started]), "prod").wait()
if communicator.rank == 0:
    print(f"started during backward: {started}; same as without: {bool(same[0])}")
