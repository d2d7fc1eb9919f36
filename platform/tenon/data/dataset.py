"""``Dataset``, ``TensorDataset``, and how samples become a batch.

A data set has ``__len__`` and ``__getitem__(index) -> (input, target)``. If it also has
``__getitems__(indices)``, as in torch, that returns all of them at once; ``TensorDataset`` answers it with
whole tensors, so that no sample is ever touched one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon.core import create
from tenon.core.op import table as f
from tenon.core.tensor import Tensor
from tenon.errors import DataError


class Dataset:
    """Base of data sets by index."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no __getitem__(index).")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} defines no __len__().")


class TensorDataset(Dataset):
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
            raise DataError(
                f"Size mismatch between tensors: first axes must agree, got {[list(s) for s in sizes]}."
            )

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(t[index] for t in self.tensors)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        rows = create.wrap(np.asarray(indices, np.int64), "cpu")
        return Batch(t.index_select(0, rows) for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class Batch(tuple[Any, ...]):
    """Tensors that are batched already: ``fetch`` takes them as they are."""


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


def fetch(dataset: Any, indices: Sequence[int]) -> Any:
    """The batch of the samples at ``indices``: ``(inputs, targets)`` with a leading batch axis."""
    several = getattr(dataset, "__getitems__", None)
    made = several(indices) if several is not None else [dataset[i] for i in indices]
    return made if isinstance(made, Batch) else collate(made)


def collate(samples: Sequence[Any]) -> Any:
    """Samples stacked into a batch: tensors, arrays, numbers, and tuples, lists or dicts of them."""
    first = samples[0]
    if isinstance(first, Tensor):
        return f.cat(*[t.unsqueeze(0) for t in samples], axis=0)
    if isinstance(first, np.ndarray | np.generic):
        return create.tensor(np.stack(list(samples)))
    if isinstance(first, bool | int | float):
        return create.tensor(list(samples))
    if isinstance(first, Mapping):
        return {k: collate([s[k] for s in samples]) for k in first}
    if isinstance(first, tuple | list):
        if any(len(s) != len(first) for s in samples):
            raise DataError(f"samples have different numbers of parts: {sorted({len(s) for s in samples})}.")
        return type(first)(collate(list(part)) for part in zip(*samples, strict=True))
    if isinstance(first, str | bytes):
        return list(samples)
    raise DataError(
        f"collate: cannot batch samples of type {type(first).__name__}. Return tensors, arrays, numbers, or"
        " tuples, lists and dicts of them."
    )
