"""PyTorch's ``torch.utils.data.datapipes.map``: a pipe over a sequence."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

from tenon.compat.utils.datapipes.datapipe import MapDataPipe

T = TypeVar("T")

__all__ = ["MapDataPipe", "SequenceWrapper"]


class SequenceWrapper(MapDataPipe[T]):
    """Indexes ``sequence``, or a deep copy of it unless ``deepcopy=False``.

    >>> SequenceWrapper("abc")[1]
    'b'
    """

    def __init__(self, sequence: Sequence[T], deepcopy: bool = True) -> None:
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: int) -> T:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)
