"""Repeat the collective calls of a step on real ranks: ``mpirun ... -m tenon_plan.plan.replay FILE``.

With a file of recorded calls it measures their time and the memory of the communicator. Without one it
measures a small and a large all-reduce, from which the network's latency and bandwidth are computed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tenon import from_numpy, nn, optim
from tenon.extend import Communicator, engine
from tenon_plan.plan import memory
from tenon_plan.plan.recorded_calls import LARGE, SMALL, RecordedCall, Result

MARK = "tenon plan measured: "
WARM, WARM_SECONDS = 40, 5.0
"""Warm-up calls, and seconds: an engine may compile its reductions after some dozens of calls."""
ROUNDS, LEAST, SECONDS = 60, 5, 3.0


def job(recorded: RecordedCall, communicator: Communicator) -> Callable[[], object]:
    """Return a function that makes the call once; arrays with a row per rank have as many as ranks here."""
    call = recorded.call
    rows = (communicator.size, *call.shape[1:])
    shape = rows if call.kind in ("reduce_scatter", "all_to_all") else call.shape
    dtype = np.dtype(call.dtype) if call.dtype not in ("", "bytes") else np.dtype(np.uint8)
    if recorded.preallocated:
        array = communicator.allocate(int(np.prod(shape)), dtype).reshape(shape)
    else:
        array = np.zeros(shape, dtype)
    name, out = call.name, array if recorded.preallocated else None
    operation = call.detail.partition(" ")[0]
    match call.kind:
        case "all_reduce" if recorded.beside:
            return lambda: communicator.start_all_reduce(array, operation, name=name).wait()
        case "all_reduce":
            return lambda: communicator.all_reduce(array, operation, out, name=name).wait()
        case "broadcast":
            return lambda: communicator.broadcast(array, 0, out=array, name=name).wait()
        case "all_gather":
            return lambda: communicator.all_gather(array, name=name).wait()
        case "reduce_scatter":
            return lambda: communicator.reduce_scatter(array, operation, name=name).wait()
        case "all_to_all":
            return lambda: communicator.all_to_all(array, name=name).wait()
        case _:
            return communicator.barrier


def seconds_of(jobs: Sequence[Callable[[], object]], communicator: Communicator) -> list[float]:
    """Return the times of several runs of all ``jobs``, one after the other."""
    seconds: list[float] = []
    for warm in (True, False):
        rounds, limit = (WARM, WARM_SECONDS) if warm else (ROUNDS, SECONDS)
        seconds, spent = [], 0.0
        while len(seconds) < rounds:
            communicator.barrier()
            began = time.perf_counter()
            for call in jobs:
                call()
            seconds.append(time.perf_counter() - began)
            spent += seconds[-1]
            # Rank 0 decides for all, so that all end with the same round.
            over = np.array([spent > limit and len(seconds) >= LEAST])
            if communicator.broadcast(over, 0, name="enough").wait()[0]:
                break
    return seconds


def replay(calls: Sequence[RecordedCall], communicator: Communicator, before: int) -> Result:
    """Measure the calls on these ranks; ``before`` is the process's memory without a communicator."""
    seconds = seconds_of([job(recorded, communicator) for recorded in calls], communicator)
    own = sum(recorded.size for recorded in calls if recorded.preallocated)
    return {"seconds": seconds, "memory": max(0, memory.peak() - before - own)}


def link(communicator: Communicator) -> Result:
    """Measure a small all-reduce, and a large one like those of gradients, between these ranks."""
    nodes = set(communicator.all_gather_bytes(str(communicator.node).encode()))
    result: Result = {"nodes": len(nodes)}
    for recorded in (SMALL, LARGE):
        result[str(recorded.call.name)] = seconds_of([job(recorded, communicator)], communicator)
    return result


def warm() -> None:
    """Train a little, so that memory of training itself does not count as the communicator's."""
    layer = nn.Linear(512, 512)
    optimizer = optim.AdamW(layer.named_parameters())
    for _ in range(3):
        optimizer.zero_grad()
        layer(from_numpy(np.ones((8, 512), np.float32))).sum().backward()
        optimizer.step()


def main() -> None:
    """Run as one rank; rank 0 prints the result."""
    calls = json.loads(Path(sys.argv[1]).read_text()) if len(sys.argv) > 1 else None
    if calls is not None:
        warm()
    before = memory.resident()
    communicator = engine.launch()
    if calls is not None:
        result = replay([RecordedCall.read(recorded) for recorded in calls], communicator, before)
    else:
        result = link(communicator)
    if communicator.rank == 0:
        print(MARK + json.dumps({"ranks": communicator.size, **result}), flush=True)


if __name__ == "__main__":
    main()
