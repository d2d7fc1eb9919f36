"""``Dataset``, ``IterableDataset`` and ``TensorDataset``: where samples come from.

A data set has ``__len__`` and ``__getitem__(index) -> (input, target)``. If it also has
``__getitems__(indices)``, as in torch, that returns all of them at once. Batches of a ``TensorDataset`` are
taken as whole tensors, so that no sample is ever touched one by one.

Next: ``combined.py`` makes data sets of data sets, ``collate.py`` makes batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from tenon.errors import DataError, SizeMismatchError
from tenon.tensors.creation import create
from tenon.tensors.tensor import Tensor

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Base of data sets by index; ``Dataset[Sample]`` says what a sample is."""

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} defines no __getitem__(index).")

    def __add__(self, other: Any) -> Any:
        from tenon.data.combined import ConcatDataset

        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Base of data sets that are streams: a subclass defines ``__iter__``, one sample after the other.

    With workers, each has a copy of the stream: split it by ``get_worker_info()``, or every sample comes
    once per worker. With ``state_dict()`` and ``load_state_dict(state)`` a stream is resumed where it was;
    without, a resumed loader reads and drops what was read before.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__().")

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} is a stream and has no index {index!r}.")

    def __add__(self, other: Any) -> Any:
        from tenon.data.combined import ChainDataset

        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Samples along the first axis of one or more tensors.

    >>> import tenon
    >>> TensorDataset(tenon.arange(6).reshape(3, 2), tenon.arange(3))[1]
    (tensor([2, 3]), tensor(1))
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise DataError("TensorDataset needs at least one tensor.")
        self.tensors = tuple(t if isinstance(t, Tensor) else create.as_tensor(t) for t in tensors)
        sizes = [tuple(t.shape) for t in self.tensors]
        if any(not s for s in sizes) or len({s[0] for s in sizes}) != 1:
            raise SizeMismatchError(
                f"Size mismatch between tensors: first axes must agree, got {[list(s) for s in sizes]}."
            )

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


@dataclass(frozen=True)
class Splits:
    """What a run trains on and what it is judged by."""

    train: Any
    test: Any


def as_splits(made: Any, where: str) -> Splits:
    """``Splits`` out of what a user's data function returned: Splits, or ``(train, test)``.

    A part may be a data set, or a tuple of tensors or arrays that share their first axis.
    """
    if isinstance(made, Splits):
        return Splits(_as_dataset(made.train), _as_dataset(made.test))
    if isinstance(made, Mapping) and {"train", "test"} <= set(made):
        return Splits(_as_dataset(made["train"]), _as_dataset(made["test"]))
    if isinstance(made, tuple) and len(made) == 2 and all(hasattr(m, "__len__") for m in made):
        return Splits(_as_dataset(made[0]), _as_dataset(made[1]))
    raise DataError(
        f"{where} returned {type(made).__name__}; expected tenon.data.Splits(train, test), or a pair of data"
        " sets with __len__ and __getitem__."
    )


def _as_dataset(part: Any) -> Any:
    whole = isinstance(part, tuple) and part and all(isinstance(p, Tensor | np.ndarray) for p in part)
    return TensorDataset(*part) if whole else part
