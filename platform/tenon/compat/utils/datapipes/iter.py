"""PyTorch's ``torch.utils.data.datapipes.iter``: a pipe over an iterable."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tenon.compat.utils.datapipes.datapipe import IterDataPipe

T = TypeVar("T")

__all__ = ["IterDataPipe", "IterableWrapper"]


class IterableWrapper(IterDataPipe[T]):
    """Iterates over ``iterable``, over a copy of it at each pass unless ``deepcopy=False``.

    >>> list(IterableWrapper(range(3)))
    [0, 1, 2]
    """

    def __init__(self, iterable: Iterable[T], deepcopy: bool = True) -> None:
        self.iterable = iterable
        self.deepcopy = deepcopy

    def __iter__(self) -> Iterator[T]:
        yield from copy.deepcopy(self.iterable) if self.deepcopy else self.iterable

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]
