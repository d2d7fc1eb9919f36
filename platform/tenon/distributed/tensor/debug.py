"""PyTorch's path ``torch.distributed.tensor.debug``: ``CommDebugMode`` counts collectives."""

from __future__ import annotations

from collections import defaultdict
from contextvars import Token
from typing import Self

from tenon.distributed.communication.calls import OBSERVERS, Call, Observer
from tenon.distributed.tensor.collective_names import KINDS, CollectiveKind

__all__ = ["CommDebugMode"]

_COUNTED = {str(kind): kind for kind in KINDS.values()}


class CommDebugMode:
    """Counts the collectives that this rank makes in the ``with`` block: those of DTensors, ``fully_shard``,
    data parallel and of the code itself.

    Keys of the counts are PyTorch's operators, ``tenon.ops.c10d_functional.all_reduce``. A collective has one
    count under all of its names, where PyTorch has those of DTensors and of users apart. Messages between two
    ranks, and what ranks compare before a call, do not count. Entering the block again begins at zero.

    Source: torch.distributed.tensor.debug.CommDebugMode.

    >>> import tenon
    >>> with CommDebugMode() as mode:
    ...     work = tenon.distributed.all_reduce(tenon.ones(2))
    >>> mode.get_comm_counts()[tenon.ops.c10d_functional.all_reduce], mode.get_total_counts()
    (1, 1)
    """

    def __init__(self) -> None:
        self.comm_counts: dict[CollectiveKind, int] = defaultdict(int)
        self._tokens: list[Token[tuple[Observer, ...]]] = []

    def __enter__(self) -> Self:
        self.comm_counts.clear()
        self._tokens.append(OBSERVERS.set((*OBSERVERS.get(), self._count)))
        return self

    def __exit__(self, *error: object) -> None:
        OBSERVERS.reset(self._tokens.pop())

    def _count(self, call: Call) -> None:
        kind = _COUNTED.get(call.kind)
        if kind is not None:
            self.comm_counts[kind] += 1

    def get_total_counts(self) -> int:
        """The number of collectives."""
        return sum(self.comm_counts.values())

    def get_comm_counts(self) -> dict[CollectiveKind, int]:
        """The number of collectives of each kind; 0 for those that have not been called."""
        return self.comm_counts

    def __repr__(self) -> str:
        return f"CommDebugMode(get_total_counts()={self.get_total_counts()})"
