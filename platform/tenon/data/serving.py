"""What a loader's worker does: make the batches it is asked for, in its own process or thread.

A task is ``(epoch, seed, number, indices)``; ``indices`` is None for streams. The answer is ``(epoch, number,
kind, content)``. Before each batch a process seeds its random numbers from the loader's seed and the batch's
number, so that augmentations are the same however many workers there are, and after a resumed epoch; unless
its ``worker_init_fn`` called ``manual_seed``, which then holds.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenon.data.collate import default_convert, fetch
from tenon.data.worker_errors import ExceptionWrapper
from tenon.errors import WorkerError
from tenon.random import initial_seed, manual_seed

BATCH, FAILED, ENDED = "batch", "failed", "ended"


@dataclass
class WorkerInfo:
    """Who a worker is, as ``get_worker_info()`` tells it; nothing of it can be assigned."""

    id: int
    num_workers: int
    seed: int
    dataset: Any

    def __post_init__(self) -> None:
        self.__dict__["_made"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "_made" in self.__dict__:
            raise WorkerError("Cannot assign attributes to WorkerInfo objects")
        super().__setattr__(name, value)


_LOCAL = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """Which worker runs this code; None in the main process."""
    return getattr(_LOCAL, "info", None)


@dataclass
class Job:
    """What every worker of a loader is given once."""

    dataset: Any
    collate: Callable[[Any], Any] | None
    batch_size: int | None
    drop_last: bool
    stream: bool
    workers: int
    init: Callable[[int], Any] | None
    own_process: bool
    #: One entry per epoch: the loader's seed.
    seeds: dict[int, int] = field(default_factory=dict)


def serve(job: Job, identity: int, receive: Callable[[], Any], answer: Callable[[Any], None]) -> None:
    """Answer tasks until None comes."""
    stream: Iterator[Any] | None = None
    epoch = -1
    started = False
    seeds = job.own_process
    while (task := receive()) is not None:
        current, seed, number, indices = task
        try:
            if current != epoch:
                _LOCAL.info = WorkerInfo(identity, job.workers, seed + identity, job.dataset)
                if seeds:
                    _seed(seed + identity, numpy_seed(seed, identity))
                if not started and job.init is not None:
                    before = initial_seed()
                    job.init(identity)
                    seeds = seeds and initial_seed() == before
                started = True
                stream = iter(job.dataset) if job.stream else None
                epoch = current  # not before: a worker that could not be prepared makes no batch
            if seeds and not job.stream:
                _seed(seed + 0x9E3779B97F4A7C15 * (number + 1))
            if stream is None:
                content = batch_of(job.dataset, indices, job.collate, job.batch_size is not None)
            else:
                content = next_batch(stream, job.collate, job.batch_size, job.drop_last)
            answer((current, number, BATCH, content))
        except Exception as error:
            if job.stream and isinstance(error, StopIteration):
                stream = iter(())  # some iterators begin anew when they are asked after their end
                answer((current, number, ENDED, None))
                continue
            where = f"in DataLoader worker {'process' if job.own_process else 'thread'} {identity}"
            answer((current, number, FAILED, ExceptionWrapper(where=where)))


def _seed(seed: int, numpy: list[int] | None = None) -> None:
    """All sources of random numbers that a data set may use."""
    seed %= 1 << 63
    manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32) if numpy is None else numpy)


def numpy_seed(base: int, worker: int) -> list[int]:
    """What torch seeds NumPy with in a worker: other numbers than ``random`` draws by the same seed."""
    words = [worker, base & 0xFFFFFFFF, base >> 32, 0]
    return [int(word) for word in np.random.SeedSequence(words).generate_state(4)]


def batch_of(dataset: Any, indices: Any, collate: Callable[[Any], Any] | None, batched: bool) -> Any:
    """The batch at ``indices``, or the one sample at an index."""
    if batched:
        return fetch(dataset, indices, collate)
    return (collate or default_convert)(dataset[indices])


def next_batch(
    stream: Iterator[Any], collate: Callable[[Any], Any] | None, batch_size: int | None, drop_last: bool
) -> Any:
    """The next batch of a stream; StopIteration after the last."""
    if batch_size is None:
        return (collate or default_convert)(next(stream))
    samples = [sample for _, sample in zip(range(batch_size), stream, strict=False)]
    if not samples or (drop_last and len(samples) < batch_size):
        raise StopIteration
    return fetch(samples, range(len(samples)), collate)
