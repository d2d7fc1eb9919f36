"""How much of the communication between two hosts goes on behind the backward pass: one line of JSON.

A step is forward and backward of a wide MLP under DistributedDataParallel, whose layers are a bucket each. In
turn: without communication, with it after backward, with it beside backward, and the communication alone. The
last bucket is full when backward ends, and backward goes on only after the first: of the shorter of the two, the
part of one layer cannot be hidden. Medians of the slower rank's, in milliseconds.
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
for number in range(ROUNDS + 2):
    for name, way in ways.items():
        model.zero_grad()
        communicator.barrier()
        start = time.perf_counter()
        way()
        mine = np.array([time.perf_counter() - start, backward.pop() if backward else 0.0])
        slowest = communicator.all_reduce(mine, "max").wait()
        if number >= 2:  # The first tells the order of the buckets, the second makes the thread beside.
            times[name].append(slowest[0])
            if name == "compute":
                times["backward"].append(slowest[1])
if communicator.rank == 0:
    found = {name: float(np.median(values)) * 1e3 for name, values in times.items()}
    found["hideable"] = min(found["communication"], found["backward"]) * (1 - 1 / LAYERS)
    found["hidden"] = (found["blocking"] - found["beside"]) / found["hideable"]
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))
