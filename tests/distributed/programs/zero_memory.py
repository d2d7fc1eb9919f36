"""What AdamW's state takes on each rank, plain and spread over the ranks: ``mpirun -n 4 python zero_memory.py``."""

import resource
import time

import tenon
import tenon.distributed as dist
from tenon import nn
from tenon.distributed.optim import ZeroRedundancyOptimizer
from tenon.optim import AdamW


def memory(label, make):
    layers = [nn.Linear(512, 512) for _ in range(40)]
    for layer in layers:
        nn.init.constant_(layer.weight, 0.5)
    model = nn.Sequential(*layers)
    optimizer = make(model.named_parameters())
    for parameter in model.parameters():
        parameter.grad = tenon.ones_like(parameter)
    start = time.perf_counter()
    for _ in range(3):
        optimizer.step()
    seconds = (time.perf_counter() - start) / 3
    state = sum(value.nbytes for entry in optimizer.state.values() for value in entry.values())
    states: list = [None] * dist.get_world_size()
    dist.all_gather_object(states, state / 2**20)
    if dist.get_rank() == 0:
        parameters = sum(p.numel() for p in model.parameters())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        shown = ", ".join(f"{mebibytes:.1f}" for mebibytes in states)
        print(f"{label}: {parameters:,} parameters, state per rank [{shown}] MiB, peak {peak:.0f} MiB, "
              f"{1e3 * seconds:.0f} ms a step")  # fmt: skip


memory("spread", lambda named: ZeroRedundancyOptimizer(named, AdamW, lr=1e-3))
memory("plain", lambda named: AdamW(named, lr=1e-3))
