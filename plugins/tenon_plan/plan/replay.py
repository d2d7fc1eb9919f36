"""The collective calls of a step, repeated on real ranks: ``mpirun ... -m tenon_plan.plan.replay FILE``.

With a file of notes it says how long they take together, and what memory the communicator needs. Without, it
measures two sums, a small and a large one, from which the network's latency and bandwidth follow.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenon import from_numpy, nn, optim
from tenon.extend import Communicator, engine
from tenon_plan.plan import memory
from tenon_plan.plan.notes import LARGE, SMALL, Note

MARK = "tenon plan measured: "
WARM, WARM_SECONDS = 40, 5.0
"""An engine may compile its sums after some dozens of them."""
ROUNDS, LEAST, SECONDS = 60, 5, 3.0


def job(note: Note, communicator: Communicator) -> Callable[[], Any]:
    """A function that makes the call once; arrays with a row for each rank have as many as there are here."""
    call = note.call
    rows = (communicator.size, *call.shape[1:])
    shape = rows if call.kind in ("reduce_scatter", "all_to_all") else call.shape
    dtype = np.dtype(call.dtype) if call.dtype not in ("", "bytes") else np.dtype(np.uint8)
    if note.placed:
        array = communicator.allocate(int(np.prod(shape)), dtype).reshape(shape)
    else:
        array = np.zeros(shape, dtype)
    name, out = call.name, array if note.placed else None
    match call.kind:
        case "all_reduce" if note.beside:
            return lambda: communicator.start_all_reduce(array, call.detail, name=name).wait()
        case "all_reduce":
            return lambda: communicator.all_reduce(array, call.detail, out, name=name).wait()
        case "broadcast":
            return lambda: communicator.broadcast(array, 0, out=array, name=name).wait()
        case "all_gather":
            return lambda: communicator.all_gather(array, name=name).wait()
        case "reduce_scatter":
            return lambda: communicator.reduce_scatter(array, call.detail, name=name).wait()
        case "all_to_all":
            return lambda: communicator.all_to_all(array, name=name).wait()
        case _:
            return communicator.barrier


def seconds_of(jobs: Sequence[Callable[[], Any]], communicator: Communicator) -> list[float]:
    """How long all of them take, one after the other, some times."""
    found: list[float] = []
    for warm in (True, False):
        least, most = (WARM, WARM_SECONDS) if warm else (ROUNDS, SECONDS)
        found, spent = [], 0.0
        while len(found) < least:
            communicator.barrier()
            began = time.perf_counter()
            for call in jobs:
                call()
            found.append(time.perf_counter() - began)
            spent += found[-1]
            # Rank 0 decides for all, or they would not end together.
            over = np.array([spent > most and len(found) >= LEAST])
            if communicator.broadcast(over, 0, name="enough").wait()[0]:
                break
    return found


def replay(notes: Sequence[Note], communicator: Communicator, before: int) -> dict[str, Any]:
    """The notes on these ranks; ``before`` is the memory of the process without a communicator."""
    found = seconds_of([job(note, communicator) for note in notes], communicator)
    own = sum(note.size for note in notes if note.placed)
    return {"seconds": found, "memory": max(0, memory.peak() - before - own)}


def link(communicator: Communicator) -> dict[str, Any]:
    """A small sum, and a large one as gradients go, between these ranks."""
    nodes = set(communicator.all_gather_bytes(str(communicator.node).encode()))
    found: dict[str, Any] = {"nodes": len(nodes)}
    for note in (SMALL, LARGE):
        found[str(note.call.name)] = seconds_of([job(note, communicator)], communicator)
    return found


def warm() -> None:
    """Train a little, so that what every training loads does not count as the communicator's memory."""
    layer = nn.Linear(512, 512)
    optimizer = optim.AdamW(layer.named_parameters())
    for _ in range(3):
        optimizer.zero_grad()
        layer(from_numpy(np.ones((8, 512), np.float32))).sum().backward()
        optimizer.step()


def main() -> None:
    """Be one rank; rank 0 says what was found."""
    given = json.loads(Path(sys.argv[1]).read_text()) if len(sys.argv) > 1 else None
    if given is not None:
        warm()
    before = memory.resident()
    communicator = engine.launch()
    if given is not None:
        found = replay([Note.read(note) for note in given], communicator, before)
    else:
        found = link(communicator)
    if communicator.rank == 0:
        print(MARK + json.dumps({"ranks": communicator.size, **found}), flush=True)


if __name__ == "__main__":
    main()
