"""Iteration over one epoch of a ``DataLoader``: order of batches, prefetching by workers, resumable position.

``Progress`` is the position that ``DataLoader.state_dict`` saves, ``Iteration`` the iterator that users see,
``_Prefetcher`` the task queue of its workers. Next: ``pool.py`` runs workers, ``serving.py`` is their loop.
"""

from __future__ import annotations

import itertools
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeGuard

import numpy as np

from tenon.data.collate import Batch
from tenon.data.dataset import T_co
from tenon.data.sampler import BatchSampler, State
from tenon.data.serving import ENDED, FAILED, batch_of, next_batch
from tenon.distributed.communication.clock import reading
from tenon.errors import TenonWarning, WorkerError
from tenon.random import random_
from tenon.tensors.pytree import tree_map
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from tenon.data.loader import DataLoader
    from tenon.data.pool import ProcessPool, ThreadPool

#: The indices of a batch, the index of a sample without batching, or None for a stream.
Indices: TypeAlias = Sequence[int] | int | None


class Stateful(Protocol):
    """A sampler or stream that can save its position: ``state_dict()``, or of a sampler also ``(taken)``."""

    def state_dict(self, *taken: int) -> State:
        """The position, of a sampler after ``taken`` samples."""

    def load_state_dict(self, state: State, /) -> None:
        """Continue from that position."""


class Progress:
    """The position of an iteration, and the seed and generator state from which it can be reproduced."""

    def __init__(self, base_seed: int, batches: int, resumed: State | None) -> None:
        self.base_seed = base_seed
        self.batches = self.first = batches
        self.done = False
        #: The state dict that the iteration was resumed from, or None.
        self.resumed = resumed
        #: State of the loader's generator after the seed was drawn, before the sampler draws.
        self.generator: Tensor | None = None

    @classmethod
    def begin(cls, loader: DataLoader[object], state: State | None) -> Progress:
        """Start an epoch: draw its seed, or resume from ``state``."""
        source = loader.generator
        if state is None:
            progress = cls(int(random_(source, (), np.int64)), 0, None)
        else:
            progress = cls(int(state["base_seed"]), int(state["batches"]), state)
            if source is not None and state.get("generator") is not None:
                source.set_state(state["generator"])
        progress.generator = None if source is None else source.get_state()
        return progress

    def state_dict(self, loader: DataLoader[object]) -> State:
        """Return the state from which ``begin`` and ``indices`` continue after the consumed batches."""
        state: State = {"batches": self.batches, "base_seed": self.base_seed, "sampler": None}
        if self.generator is not None:
            state["generator"] = self.generator
        stateful = _stateful_source(loader)
        if stateful is not None:
            taken = (self.batches - self.first) * (loader.batch_size or 1)
            state["sampler"] = stateful.state_dict(taken) if not loader.stream else stateful.state_dict()
        return state

    def indices(self, loader: DataLoader[object]) -> Iterator[Indices]:
        """Return the remaining indices of the sampler."""
        source = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        if self.resumed is None:
            return iter(source)
        stateful = _stateful_source(loader)
        if stateful is not None and self.resumed["sampler"] is not None:
            stateful.load_state_dict(self.resumed["sampler"])
            return iter(source)
        return itertools.islice(source, self.batches, None)

    def stream(self, loader: DataLoader[T_co]) -> Iterator[T_co]:
        """Return the iterator of an iterable data set, from the resumed position."""
        if self.resumed is None:
            return iter(loader.dataset)
        stateful = _stateful_source(loader)
        if stateful is not None and self.resumed["sampler"] is not None:
            stateful.load_state_dict(self.resumed["sampler"])
            return iter(loader.dataset)
        return itertools.islice(loader.dataset, self.batches * (loader.batch_size or 1), None)


def _stateful_source(loader: DataLoader[object]) -> Stateful | None:
    """Return the sampler, or in-process stream, that can save its position; None if it cannot."""
    if loader.stream:
        source = loader.dataset if loader.num_workers == 0 else None
    elif loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler:
        source = loader.sampler
    else:
        source = loader.batch_sampler
    return source if _is_stateful(source) else None


def _is_stateful(source: object) -> TypeGuard[Stateful]:
    return hasattr(source, "state_dict") and hasattr(source, "load_state_dict")


class Iteration(Generic[T_co]):
    """The iterator of a ``DataLoader``, over batches of the type that its ``collate_fn`` returns."""

    def __init__(self, loader: DataLoader[T_co], progress: Progress, epoch: int) -> None:
        self.loader = loader
        self.progress = progress
        self.epoch = epoch
        self._stream = progress.stream(loader) if loader.stream and not loader.num_workers else None
        self._indices = itertools.repeat(None) if loader.stream else progress.indices(loader)
        self._work = _Prefetcher(self) if loader.num_workers else None
        self._broken: WorkerError | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Batch:
        if self.progress.done:
            raise StopIteration
        if self._broken is not None:
            raise self._broken
        try:
            with reading(type(self).__name__):
                batch = self._next()
        except StopIteration:
            self.progress.done = True
            self.abandon()
            raise
        except WorkerError as error:  # no batch was consumed, and none will follow
            self._broken = error
            if self._work is not None:
                self._work.dismiss()
            raise
        except Exception:
            self.progress.batches += 1  # a failed batch counts as consumed: the next call continues
            raise
        except BaseException:
            if self._work is not None and not self.loader.persistent_workers:
                self._work.close()
            raise
        self.progress.batches += 1
        loader = self.loader
        if loader._expected is not None and self.progress.batches > loader._expected:
            self._warn_of_length()
        if loader.pin_memory:
            batch = tree_map(lambda leaf: leaf.pin_memory() if isinstance(leaf, Tensor) else leaf, batch)
        return batch

    def _next(self) -> Batch:
        return self._load_in_process() if self._work is None else self._work.next()

    def _load_in_process(self) -> Batch:
        loader = self.loader
        if self._stream is not None:
            return next_batch(self._stream, loader.collate_fn, loader.batch_size, loader.drop_last)
        indices = next(self._indices)
        return batch_of(loader.dataset, indices, loader.collate_fn, loader.batch_sampler is not None)

    def _warn_of_length(self) -> None:
        loader = self.loader
        warnings.warn(
            f"Length of IterableDataset {loader.dataset} was reported to be {loader._expected} (when"
            f" accessing len(dataloader)), but {self.progress.batches} samples have been fetched."
            + (
                " For multiprocessing data-loading, this means that each worker has a copy of the data set:"
                " let it yield only the part of its worker, by get_worker_info() or worker_init_fn."
                if loader.num_workers
                else ""
            ),
            TenonWarning,
            stacklevel=3,
        )

    @property
    def _workers(self) -> list[BaseProcess]:
        """The worker processes (PyTorch's private name)."""
        return [] if self._work is None else list(getattr(self._work.pool, "processes", ()))

    def _shutdown_workers(self) -> None:
        """Stop the workers, even persistent ones (PyTorch's private name)."""
        if self._work is not None:
            self._work.dismiss()
        self.progress.done = True

    def abandon(self) -> None:
        """End the iteration; its workers stop unless they are persistent."""
        if self._work is not None:
            self._work.close()
        self.progress.done = True


class _Prefetcher:
    """Tasks submitted to workers ahead of consumption, and results that arrived out of order.

    As in PyTorch, ``prefetch_factor`` tasks per worker are in flight, and each consumed batch submits one
    more. Tasks are distributed round-robin, so that the order of a stream's batches does not depend on the
    speed of workers; with ``in_order=False`` the next task goes to a worker with free capacity.
    """

    def __init__(self, iteration: Iteration[object]) -> None:
        loader = iteration.loader
        self.loader, self.epoch = loader, iteration.epoch
        self.seed = iteration.progress.base_seed
        self.indices = iteration._indices
        self.pool: ProcessPool | ThreadPool = loader._workers()
        self.busy: dict[int, int] = {}  # index of a batch in flight -> worker
        #: Results that have not been returned: index of a batch -> (worker, kind, content).
        self.results: dict[int, tuple[int, str, Batch]] = {}
        #: The number of the batch to submit next, and of the one to return next.
        self.submitted = self.expected = 0 if loader.stream else iteration.progress.batches
        #: Number of batches of a resumed stream still to be loaded and discarded, up to its saved position.
        self.skipped = iteration.progress.batches if loader.stream else 0
        self.live = deque(range(loader.num_workers))  # the next worker comes first
        self.exhausted = False
        self.capacity = (loader.prefetch_factor or 0) * loader.num_workers
        try:
            for _ in range(self.capacity):
                self._submit()
                if self.exhausted:
                    break
        except WorkerError:
            self.dismiss()
            raise

    def _submit(self) -> None:
        worker = None if self.exhausted else self._free()
        if worker is None:
            return
        try:
            indices = next(self.indices)
        except StopIteration:
            self.exhausted = True
            return
        self.pool.submit(worker, (self.epoch, self.seed, self.submitted, indices))
        self.busy[self.submitted] = worker
        self.submitted += 1

    def _free(self) -> int | None:
        """Return the next worker in turn; with ``in_order=False``, the next below its share of tasks."""
        share = self.capacity // max(len(self.live), 1)
        for _ in range(len(self.live)):
            self.live.rotate(-1)
            worker = self.live[-1]
            if self.loader.in_order or list(self.busy.values()).count(worker) < share:
                return worker
        return None

    def next(self) -> Batch:
        """Return the next batch: in order, or with ``in_order=False`` the first that is ready."""
        while True:
            while self.expected not in self.busy and self.expected not in self.results:
                if self.expected >= self.submitted:
                    raise StopIteration
                self.expected += 1
            number = self.expected if self.loader.in_order else next(iter(self.results), self.expected)
            if number not in self.results:
                self._wait()
                continue
            worker, kind, content = self.results.pop(number)
            if number == self.expected:
                self.expected += 1
            if kind == ENDED and worker in self.live:  # only when its turn comes, to be deterministic
                self.live.remove(worker)
            self._submit()
            if kind == ENDED:
                continue
            if kind == FAILED:
                content.reraise()
            if self.skipped:
                self.skipped -= 1
                continue
            return content

    def _wait(self) -> None:
        """Receive one result."""
        timeout = self.loader.timeout or None
        result = self.pool.receive(timeout)
        if result is None:
            waiting = sorted(set(self.busy.values()))
            raise WorkerError(
                f"DataLoader timed out after {timeout} seconds, waiting for worker"
                f" {', '.join(map(str, waiting))}. Raise timeout=, or check what the data set does in its"
                " workers."
            )
        epoch, number, kind, content = result
        if epoch == self.epoch:  # otherwise the result of an abandoned iteration
            self.results[number] = (self.busy.pop(number), kind, content)

    def dismiss(self) -> None:
        """Stop all workers, even persistent ones, after one has died; the loader will start new ones."""
        self.pool.close()
        if self.loader._pool is self.pool:
            self.loader._pool = None

    def close(self) -> None:
        """Stop the workers, unless they persist for the next epoch."""
        self.exhausted = True
        self.busy.clear()
        self.results.clear()
        if not self.loader.persistent_workers:
            self.pool.close()
