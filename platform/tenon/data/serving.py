"""The main loop of a loader's worker: load and collate batches on request, in its own process or thread.

Before each batch a process seeds its generators from the loader's seed and the index of the
batch, so that augmentations do not depend on the number of workers, nor on resuming; unless its
``worker_init_fn`` called ``manual_seed``, which then takes precedence.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tenon.data.collate import Batch, default_convert, fetch
from tenon.data.dataset import Source
from tenon.data.worker_errors import ExceptionWrapper
from tenon.errors import WorkerError
from tenon.random import initial_seed, manual_seed

BATCH, FAILED, ENDED = "batch", "failed", "ended"

#: ``(epoch, seed of the epoch, number of the batch, indices)``; the indices are None for streams.
Task: TypeAlias = tuple[int, int, int, Sequence[int] | int | None]
#: ``(epoch, number of the batch, kind, content)``: a batch, a wrapped exception, or None at the end.
Answer: TypeAlias = tuple[int, int, str, Batch]
#: ``collate_fn``: builds a batch from a list of samples, or converts one sample without batching.
Collate: TypeAlias = Callable[[Any], Batch]


@dataclass
class WorkerInfo:
    """Read-only description of a worker, returned by ``get_worker_info()``."""

    id: int
    num_workers: int
    seed: int
    dataset: Any  # the user's own class

    def __post_init__(self) -> None:
        self.__dict__["_frozen"] = True

    def __setattr__(self, name: str, value: object) -> None:
        if "_frozen" in self.__dict__:
            raise WorkerError("Cannot assign attributes to WorkerInfo objects")
        super().__setattr__(name, value)


_LOCAL = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """Return the description of the current worker; None in the main process."""
    return getattr(_LOCAL, "info", None)


@dataclass
class Job:
    """Configuration that every worker of a loader receives at its start."""

    dataset: Any  # a ``Source``, or an ``IterableDataset`` if ``stream``
    collate: Collate | None
    batch_size: int | None
    drop_last: bool
    stream: bool
    workers: int
    init: Callable[[int], object] | None
    own_process: bool
    #: One entry per epoch: the loader's seed.
    seeds: dict[int, int] = field(default_factory=dict)


def serve(
    job: Job, worker_id: int, receive: Callable[[], Task | None], answer: Callable[[Answer], None]
) -> None:
    """Process tasks until None arrives."""
    stream: Iterator[object] | None = None
    epoch = -1
    started = False
    seeds = job.own_process
    while (task := receive()) is not None:
        current, seed, number, indices = task
        try:
            if current != epoch:
                _LOCAL.info = WorkerInfo(worker_id, job.workers, seed + worker_id, job.dataset)
                if seeds:
                    _seed(seed + worker_id, numpy_seed(seed, worker_id))
                if not started and job.init is not None:
                    before = initial_seed()
                    job.init(worker_id)
                    seeds = seeds and initial_seed() == before
                started = True
                stream = iter(job.dataset) if job.stream else None
                epoch = current  # set last: a worker whose initialisation failed tries again
            if seeds and not job.stream:
                _seed(seed + 0x9E3779B97F4A7C15 * (number + 1))
            if stream is None:
                content = batch_of(job.dataset, indices, job.collate, job.batch_size is not None)
            else:
                content = next_batch(stream, job.collate, job.batch_size, job.drop_last)
            answer((current, number, BATCH, content))
        except Exception as error:
            if job.stream and isinstance(error, StopIteration):
                stream = iter(())  # some iterators restart if next() is called after StopIteration
                answer((current, number, ENDED, None))
                continue
            where = f"in DataLoader worker {'process' if job.own_process else 'thread'} {worker_id}"
            answer((current, number, FAILED, ExceptionWrapper(where=where)))


def _seed(seed: int, numpy: list[int] | None = None) -> None:
    """Seed all generators that a data set may use: tenon's, ``random`` and NumPy's."""
    seed %= 1 << 63
    manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32) if numpy is None else numpy)


def numpy_seed(base: int, worker: int) -> list[int]:
    """Return PyTorch's NumPy seed of a worker, which decorrelates NumPy from ``random``."""
    words = [worker, base & 0xFFFFFFFF, base >> 32, 0]
    return [int(word) for word in np.random.SeedSequence(words).generate_state(4)]


def batch_of(
    dataset: Source[object],
    indices: Any,  # a sequence of indices if ``batched``, else one index
    collate: Collate | None,
    batched: bool,
) -> Batch:
    """Return the collated batch at ``indices``; if not ``batched``, the single sample at that index."""
    if batched:
        return fetch(dataset, indices, collate)
    return (collate or default_convert)(dataset[indices])


def next_batch(
    stream: Iterator[object], collate: Collate | None, batch_size: int | None, drop_last: bool
) -> Batch:
    """Return the next batch of a stream; StopIteration after the last."""
    if batch_size is None:
        return (collate or default_convert)(next(stream))
    samples = [sample for _, sample in zip(range(batch_size), stream, strict=False)]
    if not samples or (drop_last and len(samples) < batch_size):
        raise StopIteration
    return fetch(samples, range(len(samples)), collate)
