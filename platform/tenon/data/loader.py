"""``DataLoader``: batches of a data set, loaded in-process or prefetched by workers; resumable mid-epoch.

Next: ``iteration.py`` iterates over one epoch, ``pool.py`` runs the workers, ``collate.py`` builds batches.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.context import BaseContext
from typing import Any, Generic

from tenon.data.collate import Batch, default_collate, default_convert
from tenon.data.dataset import Dataset, IterableDataset, Source, T_co
from tenon.data.iteration import Iteration, Progress
from tenon.data.pool import ProcessPool, ThreadPool, check_context, pool_of
from tenon.data.sampler import BatchSampler, RandomSampler, SequentialSampler, State, check_batches
from tenon.data.serving import Collate, Job
from tenon.errors import DataError
from tenon.kernels import backend
from tenon.random import Generator

#: Attributes that cannot be assigned after construction, as in PyTorch.
_FIXED = frozenset(["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"])


class DataLoader(Generic[T_co]):
    """Iterate over batches of ``dataset``, as torch.utils.data.DataLoader does, with a ``state_dict``.

    For the same seed the order is PyTorch's. ``num_workers`` processes prefetch ``prefetch_factor`` (2)
    batches each; with ``multiprocessing_context="thread"`` they are threads. Each worker computes with one
    thread. In worker processes the random state depends on the loader's seed and the index of the batch, not
    on the worker, so that an epoch is the same with any number of workers.

    ``state_dict()`` records the position in the epoch; after ``load_state_dict`` the next iteration continues
    with the first batch not yet consumed. With a ``DistributedSampler`` the position counts over all ranks
    and may be loaded with another world size. A sampler or stream without a ``state_dict`` is replayed up to
    that position instead.

    >>> import tenon
    >>> loader = DataLoader(tenon.data.TensorDataset(tenon.arange(5)), batch_size=2)
    >>> for (batch,) in loader:
    ...     state = loader.state_dict()
    ...     break
    >>> loader.load_state_dict(state)
    >>> [batch.tolist() for (batch,) in loader]
    [[2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Dataset[T_co] | Source[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,  # of indices as the data set takes them
        batch_sampler: Iterable[Sequence[Any]] | None = None,  # likewise
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        self.stream = isinstance(dataset, IterableDataset)
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        _check_order(self.stream, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if multiprocessing_context != "thread":
            _warn_of_many(num_workers)
        self.dataset: Any = dataset  # the class Dataset has no __len__, subclasses do
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = prefetch_factor if prefetch_factor is not None or not num_workers else 2
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        if pin_memory and not _pins():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory"
                " won't be used.",
                stacklevel=2,
            )
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None and not self.stream and batch_sampler is None:
            source: Any = dataset  # with a length, as it is not a stream
            sampler = RandomSampler(source, generator=generator) if shuffle else SequentialSampler(source)
        if batch_sampler is None and batch_size is not None:
            check_batches(batch_size, drop_last)
            if sampler is not None:
                batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler: Any = sampler  # an iterable, whose length ``len(loader)`` needs
        self.batch_sampler: Any = batch_sampler  # likewise
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        elif not callable(collate_fn):
            raise TypeError(
                "DataLoader: collate_fn must be a function of a list of samples, got"
                f" {collate_fn!r:.60} of type {type(collate_fn).__name__}"
            )
        self.collate_fn = collate_fn
        self._pool: ProcessPool | ThreadPool | None = None
        self._epoch = 0
        self._progress: Progress | None = None
        self._resume: State | None = None
        #: ``len(dataset)`` of an iterable data set at the last ``len(loader)``; exceeding it warns.
        self._expected: int | None = None
        self._iteration: weakref.ref[Iteration[T_co]] | None = None
        self.__initialized = True

    #: Third-party code sets it to False while it replaces a sampler (PyTorch's private name).
    __initialized = False

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FIXED and self.__initialized:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        if name == "multiprocessing_context" and value is not None:
            check_context(value, self.num_workers)
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[Batch]:
        before = self._iteration() if self._iteration is not None else None
        if before is not None and self.persistent_workers:
            before.abandon()
        resume, self._resume = self._resume, None
        self._epoch += 1
        self._progress = Progress.begin(self, resume)
        iteration = Iteration(self, self._progress, self._epoch)
        self._iteration = weakref.ref(iteration)
        return iteration

    def __len__(self) -> int:
        if self.stream:
            size = self._expected = len(self.dataset)
            if self.batch_size is None:
                return size
            return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    # --- state of the iteration ---

    def state_dict(self) -> State:
        """Return the position in the latest iteration; ``{"batches": 0, ...}`` before and after one."""
        progress = self._progress
        state: State = {"size": self._size(), "batches": 0}
        if (fingerprint := getattr(self.dataset, "fingerprint", None)) is not None:
            state["fingerprint"] = fingerprint
        if progress is None or progress.done:
            if self.generator is not None:
                state["generator"] = self.generator.get_state()
            return state | ({} if self._resume is None else self._resume)
        return state | progress.state_dict(self)

    def load_state_dict(self, state: State) -> None:
        """Resume the next iteration from ``state``. DataError, without a change, if the data set differs."""
        missing = [key for key in ("size", "batches") if key not in state]
        if missing:
            raise DataError(
                f"the loader's state lacks {', '.join(missing)}; it has {', '.join(state) or 'nothing'}. Pass"
                " what DataLoader.state_dict() returned."
            )
        if state["size"] is not None and state["size"] != self._size():
            raise DataError(
                f"the loader's state is of a data set of {state['size']} samples, this one has"
                f" {self._size()}. Resume with the same data, or start a new epoch."
            )
        own = getattr(self.dataset, "fingerprint", None)
        if own is not None and state.get("fingerprint", own) != own:
            raise DataError(
                f"the loader's state is of other data, of the fingerprint {state['fingerprint']!r:.80}; this"
                f" data set has {own!r}. Resume with the same shards in the same order, or start a new epoch."
            )
        if state["batches"] or "sampler" in state:
            self._resume = dict(state)
            return
        self._resume = None
        if self.generator is not None and "generator" in state:
            self.generator.set_state(state["generator"])

    def _size(self) -> int | None:
        return None if self.stream else len(self.dataset)

    # --- workers ---

    def _workers(self) -> ProcessPool | ThreadPool:
        """Return the worker pool of an iteration: the persistent one, or a new one."""
        if self._pool is not None:
            return self._pool
        thread = self.multiprocessing_context == "thread"
        job = Job(
            self.dataset, self.collate_fn, self._batch_length(), self.drop_last, self.stream,
            self.num_workers, self.worker_init_fn, not thread,
        )  # fmt: skip
        pool = pool_of(job, self.multiprocessing_context)
        if self.persistent_workers:
            self._pool = pool
        return pool

    @property
    def _auto_collation(self) -> bool:
        """Whether samples are collated into batches (PyTorch's private name)."""
        return self._batch_length() is not None

    def _get_iterator(self) -> Iterator[Batch]:
        """Return a new iterator (PyTorch's private name), for subclasses that override ``__iter__``."""
        return DataLoader.__iter__(self)

    def _batch_length(self) -> int | None:
        """Return the batch size; 0 if a user's batch sampler determines it, None without batching."""
        if self.batch_size is not None:
            return self.batch_size
        return None if self.batch_sampler is None else 0

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_pool": None, "_iteration": None, "_progress": None}


def _pins() -> bool:
    return bool(backend.backend_named("cuda").is_available()[0])


#: Far more than help on any machine, and few enough that starting them ends.
_MOST_WORKERS = 4096


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool) -> None:
    for name, value in (("num_workers", num_workers), ("prefetch_factor", prefetch_factor)):
        if not hasattr(type(value), "__index__") and (value is not None or name == "num_workers"):
            raise TypeError(f"{name} option should be an integer, but is {value!r}")
    if num_workers > _MOST_WORKERS:
        raise ValueError(f"num_workers option should be at most {_MOST_WORKERS}, but is {num_workers}")
    if num_workers < 0:
        raise ValueError(
            f"num_workers option should be non-negative, but is {num_workers}; use num_workers=0 to disable"
            " multiprocessing."
        )
    if not timeout >= 0:  # nan, too
        raise ValueError(f"timeout option should be non-negative, but is {timeout}")
    if prefetch_factor is not None and num_workers == 0:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable"
            " multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError(f"prefetch_factor option should be at least 1, but is {prefetch_factor}")
    if persistent and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _warn_of_many(num_workers: int) -> None:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if num_workers > usable:
        warnings.warn(
            f"This DataLoader will create {num_workers} worker processes in total. Our suggested max number"
            f" of worker in current system is {usable}, which is smaller than what this DataLoader is going"
            " to create. Please be aware that excessive worker creation might get DataLoader running slow or"
            " even freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
            stacklevel=3,
        )


def _check_order(
    stream: bool,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Iterable[object] | None,
    batch_sampler: Iterable[Sequence[object]] | None,
    drop_last: bool,
) -> None:
    """Raise ValueError for options of the order that exclude each other, as PyTorch does."""
    if stream:
        options: dict[str, object] = {
            "shuffle": shuffle or None,
            "sampler": sampler,
            "batch_sampler": batch_sampler,
        }
        for name, value in options.items():
            if value is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got"
                    f" {name}={value}"
                )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
            )
    elif batch_size is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )
