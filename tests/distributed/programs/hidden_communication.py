"""How much of the communication between two hosts goes on behind the backward pass: one line of JSON.

A step is forward and backward of a wide MLP under DistributedDataParallel, whose layers are a bucket each. In
turn: without communication, with it after backward, with it beside backward, and the communication alone. The
last bucket is full when backward ends, and backward goes on only after the first: of the shorter of the two, the
part of one layer cannot be hidden. Medians of the slower rank's, in milliseconds; and which part of the time a
processor was there for it, as communication cannot use what computation has to share with other programs.
"""

import json
import sys
import time

import numpy as np

import tenon
from tenon import nn
from tenon.distributed import get_communicator
from tenon.nn.parallel import DistributedDataParallel

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
WIDTH, LAYERS, BATCH, BUCKET_MB = 1024, 8, 448, 4

communicator = get_communicator()
tenon.manual_seed(0)
layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=BUCKET_MB)
x = tenon.tensor(np.random.default_rng(communicator.rank).standard_normal((BATCH, WIDTH)).astype(np.float32))
buffers = [communicator.allocate(WIDTH * WIDTH, np.dtype(np.float32)) for _ in range(LAYERS)]


def compute():
    with model.no_sync():
        loss = model(x).square().mean()
        start = time.perf_counter()
        loss.backward()
        backward.append(time.perf_counter() - start)


def step(overlaps):
    communicator.overlaps = overlaps
    model(x).square().mean().backward()


def communicate():
    for buffer in buffers:
        communicator.all_reduce(buffer, "mean", buffer)


backward = []
ways = {
    "compute": compute,
    "blocking": lambda: step(False),
    "beside": lambda: step(True),
    "communication": communicate,
}
times = {name: [] for name in [*ways, "backward"]}
lacking = []
for number in range(ROUNDS + 2):
    for name, way in ways.items():
        model.zero_grad()
        communicator.barrier()
        start, used = time.perf_counter(), time.thread_time()
        way()
        seconds, used = time.perf_counter() - start, time.thread_time() - used
        mine = np.array([seconds, backward.pop() if backward else 0.0, 1 - used / seconds])
        slowest = communicator.all_reduce(mine, "max").wait()
        if number >= 2:  # The first tells the order of the buckets, the second makes the thread beside.
            times[name].append(slowest[0])
            if name == "compute":
                times["backward"].append(slowest[1])
                lacking.append(slowest[2])
if communicator.rank == 0:
    found = {name: float(np.median(values)) * 1e3 for name, values in times.items()}
    found["hideable"] = min(found["communication"], found["backward"]) * (1 - 1 / LAYERS)
    found["hidden"] = (found["blocking"] - found["beside"]) / found["hideable"]
    found["processor"] = 1 - float(np.median(lacking))
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))
