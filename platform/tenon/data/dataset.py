"""``Dataset``, ``IterableDataset`` and ``TensorDataset``: sources of samples.

A data set has ``__len__`` and ``__getitem__(index) -> (input, target)``. An optional
``__getitems__(indices)``, as in PyTorch, returns several samples at once. Batches of a ``TensorDataset`` are
gathered from the whole tensors, without a loop over samples.

Next: ``combined.py`` composes data sets, ``collate.py`` builds batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from tenon.errors import DataError, SizeMismatchError
from tenon.tensors.creation import create
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tenon.data.combined import ChainDataset, ConcatDataset

T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """What a loader needs of a map-style data set; a list, a range or an array is one too."""

    def __len__(self) -> int:
        """The number of samples."""

    def __getitem__(self, index: Any, /) -> T_co:  # each data set chooses the type of its indices
        """The sample at ``index``."""


class Dataset(Generic[T_co]):
    """Base class of map-style data sets; ``Dataset[Sample]`` is typed by its samples."""

    def __getitem__(self, index: Any) -> T_co:  # subclasses choose the type of their indices
        raise NotImplementedError(f"{type(self).__name__} defines no __getitem__(index).")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        from tenon.data.combined import ConcatDataset

        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Base class of iterable data sets (streams): a subclass defines ``__iter__``, which yields samples.

    Each worker has a copy of the stream: shard it by ``get_worker_info()``, or every sample is repeated once
    per worker. A stream with ``state_dict()`` and ``load_state_dict(state)`` is resumed at its position;
    without these a resumed loader reads and discards the samples before that position.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__().")

    def __getitem__(self, index: object) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} is a stream and has no index {index!r}.")

    def __add__(self, other: Dataset[T_co]) -> ChainDataset[T_co]:  # type: ignore[override]  # as in PyTorch
        from tenon.data.combined import ChainDataset

        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Samples along the first axis of one or more tensors.

    >>> import tenon
    >>> TensorDataset(tenon.arange(6).reshape(3, 2), tenon.arange(3))[1]
    (tensor([2, 3]), tensor(1))
    """

    def __init__(self, *tensors: Tensor | ArrayLike) -> None:
        if not tensors:
            raise DataError("TensorDataset needs at least one tensor.")
        self.tensors: tuple[Tensor, ...] = tuple(
            t if isinstance(t, Tensor) else create.as_tensor(t) for t in tensors
        )
        sizes = [tuple(t.shape) for t in self.tensors]
        if any(not s for s in sizes) or len({s[0] for s in sizes}) != 1:
            raise SizeMismatchError(
                f"Size mismatch between tensors: first axes must agree, got {[list(s) for s in sizes]}."
            )

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:  # any index of tensors
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


@dataclass(frozen=True)
class Splits:
    """The training and test data sets of a run."""

    train: Source[Any]  # whatever samples the model and the loss take
    test: Source[Any]  # likewise


def as_splits(data: object, where: str) -> Splits:
    """Convert the result of a user's data function to ``Splits``: a Splits, a dict, or ``(train, test)``.

    A part may be a data set, or a tuple of tensors or arrays that share their first axis. ``where`` names the
    function in the DataError for other results.
    """
    if isinstance(data, Splits):
        return Splits(_as_dataset(data.train), _as_dataset(data.test))
    if isinstance(data, Mapping) and {"train", "test"} <= set(data):
        return Splits(_as_dataset(data["train"]), _as_dataset(data["test"]))
    if isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "__len__") for part in data):
        return Splits(_as_dataset(data[0]), _as_dataset(data[1]))
    raise DataError(
        f"{where} returned {type(data).__name__}; expected tenon.data.Splits(train, test), or a pair of data"
        " sets with __len__ and __getitem__."
    )


def _as_dataset(part: Any) -> Source[object]:  # what a user's function returned
    """``part``, or a ``TensorDataset`` of a tuple of tensors or arrays."""
    tensors = isinstance(part, tuple) and part and all(isinstance(p, Tensor | np.ndarray) for p in part)
    return TensorDataset(*part) if tensors else part
