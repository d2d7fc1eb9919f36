"""Samplers: the order in which samples are drawn. For the same seed the order is PyTorch's.

Samplers here are stateful: ``state_dict(taken)`` is the position of an iteration after ``taken`` samples;
after ``load_state_dict`` the next iteration continues from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

import numpy as np

from tenon.data.dataset import T_co
from tenon.dtypes import float64
from tenon.random import Generator, default_generator, multinomial, randint, random_, randperm
from tenon.tensors.creation import create
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: The state of a loader, an iteration or a sampler.
State: TypeAlias = dict[str, Any]


class Sampler(Generic[T_co]):
    """Base class of samplers: ``__iter__`` yields indices, or lists of them for a ``batch_sampler``."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__().")


class _Resumable(Sampler[int]):
    """A sampler whose iteration can be resumed mid-epoch."""

    #: Number of samples that the latest iteration skipped, and that the next one will skip.
    _skipped = 0
    _skip_next = 0

    def state_dict(self, taken: int = 0) -> State:
        """Return the position of the latest iteration after ``taken`` samples."""
        return {"taken": self._skipped + taken}

    def load_state_dict(self, state: State) -> None:
        """Resume the next iteration, and only that, from ``state``."""
        self._skip_next = int(state["taken"])

    def __iter__(self) -> Iterator[int]:
        self._skipped, self._skip_next = self._skip_next, 0
        return itertools.islice(self._indices(), self._skipped, None)

    def _indices(self) -> Iterator[int]:
        """All indices of an epoch."""
        raise NotImplementedError(f"{type(self).__name__} defines no _indices().")


class SequentialSampler(_Resumable):
    """Yield all indices in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def _indices(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class _Drawing(_Resumable):
    """A random sampler: draws from ``generator``, or without one from the generator of ``_own``."""

    generator: Generator | None
    #: State of the generator when the latest iteration began, and when the resumed one did.
    _initial_state: Tensor | None = None
    _resumed_state: Tensor | None = None

    def state_dict(self, taken: int = 0) -> State:
        """Return the position, and the state of the generator when the latest iteration began."""
        return super().state_dict(taken) | {"generator": self._initial_state}

    def load_state_dict(self, state: State) -> None:
        """Resume the next iteration: it redraws the saved order, and continues after its position."""
        super().load_state_dict(state)
        self._resumed_state = state["generator"]

    def _source(self) -> Generator:
        """Return the generator for a new iteration, restored if the iteration is resumed."""
        resumed, self._resumed_state = self._resumed_state, None
        if resumed is not None:
            source = Generator() if self.generator is None else self.generator
            source.set_state(resumed)
        else:
            source = self._own() if self.generator is None else self.generator
        self._initial_state = source.get_state()
        return source

    def _own(self) -> Generator:
        """The generator of an iteration if ``generator`` is None."""
        return default_generator


def _check_count(num_samples: int) -> None:
    if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
        raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")


class RandomSampler(_Drawing):
    """Yield all indices in random order, or ``num_samples`` of them, with or without ``replacement``."""

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        _check_count(self.num_samples)

    @property
    def num_samples(self) -> int:
        """Number of samples drawn; by default the size of the data set."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _own(self) -> Generator:
        return Generator().manual_seed(int(random_(None, (), np.int64)))

    def _indices(self) -> Iterator[int]:
        source, size = self._source(), len(self.data_source)
        if self.replacement:
            for _ in range(self.num_samples // 32):
                yield from randint(source, 0, size, (32,)).tolist()
            yield from randint(source, 0, size, (self.num_samples % 32,)).tolist()
            return
        for _ in range(self.num_samples // size):
            yield from randperm(source, size).tolist()
        yield from randperm(source, size).tolist()[: self.num_samples % size]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(_Drawing):
    """Yield ``indices`` in random order, without replacement."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def _indices(self) -> Iterator[int]:
        for position in randperm(self._source(), len(self.indices)).tolist():
            yield self.indices[position]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(_Drawing):
    """Draw ``num_samples`` indices with probabilities proportional to ``weights``."""

    def __init__(
        self,
        weights: Tensor | ArrayLike,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        _check_count(num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = create.as_tensor(
            weights if isinstance(weights, Tensor) else np.asarray(weights, np.float64), dtype=float64
        )
        if self.weights.ndim != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def _indices(self) -> Iterator[int]:
        source = self._source()
        yield from multinomial(source, self.weights.raw, self.num_samples, self.replacement).tolist()

    def __len__(self) -> int:
        return self.num_samples


def check_batches(batch_size: int, drop_last: bool) -> None:
    """Raise ValueError unless ``batch_size`` is a positive integer and ``drop_last`` a bool."""
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
        raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
    if not isinstance(drop_last, bool):
        raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")


class BatchSampler(Sampler[list[int]]):
    """Yield lists of ``batch_size`` indices of ``sampler``; the last is shorter, or dropped (``drop_last``).

    >>> list(BatchSampler(SequentialSampler(range(5)), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        check_batches(batch_size, drop_last)
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        size = len(self.sampler)  # type: ignore[arg-type]
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
