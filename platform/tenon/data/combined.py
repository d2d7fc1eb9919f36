"""Data sets composed of others: concatenated, chained, stacked, and subsets."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from tenon.data.dataset import Dataset, IterableDataset, Source, T_co, TensorDataset
from tenon.random import Generator, randperm
from tenon.tensors.creation import create
from tenon.tensors.tensor import Tensor

Sample = TypeVar("Sample")


class ConcatDataset(Dataset[T_co]):
    """Concatenation of several data sets.

    >>> ConcatDataset([range(3), range(10, 12)])[-1]
    11
    """

    def __init__(self, datasets: Iterable[Dataset[T_co] | Source[T_co]]) -> None:
        self.datasets: list[Any] = list(datasets)  # each with __len__, which the class Dataset does not have
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        if not -len(self) <= index < len(self):
            if index < 0:
                raise ValueError("absolute value of index should not exceed dataset length")
            raise IndexError(f"index {index} is out of range for a data set of {len(self)} samples")
        index %= len(self)
        position = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[position][index - (self.cumulative_sizes[position - 1] if position else 0)]


class ChainDataset(IterableDataset[T_co]):
    """Concatenation of several iterable data sets."""

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets: Iterable[Any] = datasets  # some streams have a length

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)


class StackDataset(Dataset[T_co]):
    """Zip of data sets of equal length: a sample is a tuple of theirs, or a dict if passed by keyword.

    >>> StackDataset(image=range(3), label="abc")[1]
    {'image': 1, 'label': 'b'}
    """

    def __init__(self, *args: Source[object], **kwargs: Source[object]) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like input/output,"
                " but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets: tuple[Source[object], ...] | dict[str, Source[object]] = kwargs or args
        lengths = [len(d) for d in (kwargs.values() if kwargs else args)]
        if len(set(lengths)) > 1:
            raise ValueError(f"Size mismatch between datasets: {lengths}")
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> Any:  # a tuple or a dict
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: Sequence[int]) -> list[object]:
        """The samples at ``indices``."""
        datasets = self.datasets.values() if isinstance(self.datasets, dict) else self.datasets
        columns = [samples_of(dataset, indices) for dataset in datasets]
        for column in columns:
            if len(column) != len(indices):
                raise ValueError(
                    f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(column)}"
                )
        rows = zip(*columns, strict=True)
        if isinstance(self.datasets, dict):
            return [dict(zip(self.datasets, row, strict=True)) for row in rows]
        return list(rows)

    def __len__(self) -> int:
        return self._length


class Subset(Dataset[T_co]):
    """The samples of ``dataset`` at ``indices``."""

    def __init__(self, dataset: Dataset[T_co] | Source[T_co], indices: Sequence[int]) -> None:
        own = type(self)
        if own.__getitem__ is not Subset.__getitem__ and own.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{own.__name__} overrides __getitem__ but not __getitems__, which loaders call. Override"
                " both; __getitems__(indices) may return [self[i] for i in indices]."
            )
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: int | list[int]) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[T_co]:
        """The samples at ``indices`` of the subset."""
        return samples_of(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def samples_of(dataset: Dataset[Sample] | Source[Sample], indices: Sequence[int]) -> Sequence[Sample]:
    """Return the samples at ``indices``: from ``dataset.__getitems__`` if it has that, else as a list."""
    getitems = getattr(dataset, "__getitems__", None)
    return [dataset[i] for i in indices] if getitems is None else getitems(indices)


def whole_batch(dataset: object, indices: Sequence[int]) -> list[Tensor] | None:
    """Index the tensors of a ``TensorDataset``, or a ``Subset`` of one, by all ``indices`` at once.

    None for other data sets, and for subclasses that override how samples are read.
    """
    if isinstance(dataset, Subset):
        kind = type(dataset)
        if kind.__getitem__ is not Subset.__getitem__ or kind.__getitems__ is not Subset.__getitems__:
            return None
        return whole_batch(dataset.dataset, [dataset.indices[i] for i in indices])
    if not isinstance(dataset, TensorDataset) or type(dataset).__getitem__ is not TensorDataset.__getitem__:
        return None
    if getattr(dataset, "__getitems__", None) is not None or not len(indices):
        return None
    rows = np.asarray(indices)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        return None
    rows = np.where(rows < 0, rows + len(dataset), rows).astype(np.int64, copy=False)
    return [tensor.index_select(0, create.wrap(rows, "cpu")) for tensor in dataset.tensors]


def random_split(
    dataset: Source[Sample], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[Sample]]:
    """Split ``dataset`` randomly into subsets of ``lengths``: numbers of samples, or fractions with sum 1.

    Samples left over by rounding go to the first subsets, one each. For the same seed the order is PyTorch's.
    ValueError if the lengths do not sum to the size.

    >>> import tenon
    >>> [len(part) for part in random_split(range(10), [0.5, 0.25, 0.25])]
    [6, 2, 2]
    """
    size = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, share in enumerate(lengths):
            if not 0 <= share <= 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
        counts = [math.floor(size * share) for share in lengths]
        for i in range(size - sum(counts)):
            counts[i % len(counts)] += 1
        for i, count in enumerate(counts):
            if count == 0:
                warnings.warn(
                    f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=2
                )
        lengths = counts
    if sum(lengths) != size:
        raise ValueError(
            "Sum of input lengths does not equal the length of the input dataset!"
            f" They are {list(lengths)}, together {sum(lengths)}; the dataset has {size} samples."
        )
    order = randperm(generator, size).tolist()
    ends = list(itertools.accumulate(int(n) for n in lengths))
    return [Subset(dataset, order[end - int(n) : end]) for n, end in zip(lengths, ends, strict=True)]
