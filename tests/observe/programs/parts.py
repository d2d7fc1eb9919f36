"""Two ranks train, eagerly and compiled; each prints the parts of its profiled steps as one line of JSON."""

import json
import time

import tenon
import tenon.distributed as dist
from tenon import nn
from tenon.profiler import profile, schedule
from tenon_profiler import overview

dist.init_process_group()
rank = dist.get_rank()
tenon.manual_seed(0)
inner = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
model = nn.parallel.DistributedDataParallel(inner)
optimizer = tenon.optim.AdamW(model.parameters())
x, y = tenon.randn(32, 64), tenon.randint(0, 10, (32,))


def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


for kind, train in (("eager", step), ("compiled", tenon.compile(step))):
    for _ in range(4):
        train()
    with profile(schedule=schedule(wait=0, warmup=1, active=3)) as prof:
        for _ in range(4):
            time.sleep(0.03 * rank)  # rank 0 waits in the step's exchange
            train()
            prof.step()
    events = prof._all()
    kernels = {}
    for event in events:
        if event.get("Kernel"):
            kernels.setdefault(event.get("Phase"), []).extend(event.get("Source ops"))
    steps = [[duration, parts] for _, duration, parts in overview.steps(events)]
    print(json.dumps({"rank": rank, "kind": kind, "steps": steps, "kernels": kernels}), flush=True)
dist.destroy_process_group()
