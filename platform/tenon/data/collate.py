"""Collation: samples to batches by ``default_collate``, as in PyTorch, and ``fetch``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

import tenon.ops  # noqa: F401 - fills the op table
from tenon.data.combined import samples_of, whole_batch
from tenon.data.dataset import Dataset, Source
from tenon.dtypes import float64
from tenon.engine.op import table as f
from tenon.engine.types import Nested
from tenon.errors import CollateError
from tenon.tensors.creation import create
from tenon.tensors.tensor import Tensor

Sample = TypeVar("Sample")
#: A batch of samples, of the type that ``collate_fn`` returns.
Batch: TypeAlias = Any


def fetch(
    dataset: Dataset[Sample] | Source[Sample],
    indices: Sequence[int],
    collate: Callable[[Sequence[Sample]], Batch] | None = None,
) -> Batch:
    """Return the batch of the samples at ``indices``, collated by ``collate`` or ``default_collate``."""
    batch = whole_batch(dataset, indices) if collate is None or collate is default_collate else None
    return (collate or default_collate)(samples_of(dataset, indices)) if batch is None else batch


def default_collate(batch: Sequence[Any]) -> Batch:  # of samples, all of one type
    """Stack samples along a new first axis: tensors, arrays, numbers, and containers of them.

    Dicts and named tuples keep their type, tuples become lists, strings stay a list. As
    torch.utils.data.default_collate. CollateError, a TypeError, for samples that cannot be stacked.

    >>> default_collate([(1.0, "a"), (2.0, "b")])
    [tensor([1., 2.], dtype=torch.float64), ('a', 'b')]
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _stacked(list(batch))
    if isinstance(first, str | bytes):  # includes np.str_ and np.bytes_
        return batch
    if isinstance(first, np.ndarray | np.generic):
        if first.dtype.kind in "SUO":
            raise CollateError(_UNKNOWN.format(first.dtype))
        return _stacked([create.as_tensor(sample) for sample in batch])
    if isinstance(first, float):
        return create.tensor(list(batch), dtype=float64)
    if isinstance(first, int):
        return create.tensor(list(batch))
    if isinstance(first, Mapping):
        return like(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(part) for part in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        parts = [default_collate(part) for part in zip(*batch, strict=True)]
        return parts if isinstance(first, tuple) else like(first, parts)
    raise CollateError(_UNKNOWN.format(type(first)))


def default_convert(data: object) -> Nested:
    """Convert the arrays of one sample to tensors, also in containers; leave everything else unchanged."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return data if data.dtype.kind in "SUO" else create.as_tensor(data)
    if isinstance(data, Mapping):
        return like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, tuple):
        return [default_convert(value) for value in data]
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return like(data, [default_convert(value) for value in data])
    return data


_UNKNOWN = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}. Return"
    " those from the data set, or give the loader a collate_fn."
)


def _stacked(samples: list[Tensor]) -> Tensor:
    """Stack tensors of one shape; RuntimeError if the shapes differ."""
    shapes = {tuple(sample.shape) for sample in samples}
    if len(shapes) > 1:
        first = tuple(samples[0].shape)
        entry = next(i for i, sample in enumerate(samples) if tuple(sample.shape) != first)
        raise RuntimeError(
            f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and"
            f" {list(samples[entry].shape)} at entry {entry}. Pad them, or give the loader a collate_fn."
        )
    return f.stack(*samples, axis=0)


def like(first: object, content: Mapping[object, object] | Sequence[object]) -> Nested:
    """Return ``content`` in a container of the type of ``first``; unchanged if the type does not allow it."""
    try:
        if isinstance(first, MutableMapping):
            mapping = copy.copy(first)
            mapping.update(content)  # type: ignore[arg-type]  # a mapping, as ``first`` is one
            return mapping
        if isinstance(first, MutableSequence):
            sequence = copy.copy(first)
            for i, value in enumerate(content):
                sequence[i] = value
            return sequence
        return type(first)(content)  # type: ignore[call-arg]
    except TypeError:  # the container's constructor does not accept the content
        return content
