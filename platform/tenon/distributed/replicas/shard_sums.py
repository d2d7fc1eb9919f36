"""Gradients of logical shards, added up as one tree over all shards while they come, in little memory.

The tree is ``reduction.combine``'s, ((0, 1), (2, 3)). A rank computes consecutive shards, one after another:
sums of 1, 2, 4, ... of them wait for their sibling, as carries do in binary counting. What is left at the end
is a whole branch, or the whole tree, and lies in the buckets, where the engine goes on with the same tree.
A shard without a gradient counts as zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.distributed.communication import staging
from tenon.distributed.replicas.buckets import Bucket
from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.tensors.tensor import Tensor

Gradients = Sequence[np.ndarray | None]


class ShardSums:
    """The sum of the gradients of ``shards`` shards, in the buckets of ``synchronizer``."""

    def __init__(self, synchronizer: GradientSynchronizer, shards: int) -> None:
        self._synchronizer = synchronizer
        self._done = 0
        self._used: set[int] = set()
        self._trees = [_Tree(bucket, shards) for bucket in synchronizer.buckets]

    def restart(self) -> None:
        """Begin with the first shard, without gradients."""
        self._synchronizer.restart()
        self._done = 0
        self._take()
        self._used.clear()

    def add(self) -> None:
        """Take the gradients of the shard that was computed last; none are left."""
        with np.errstate(all="ignore"):
            for tree in self._trees:
                tree.add(self._done)
        self._done += 1
        self._take()

    def deliver(self) -> None:
        """After the last shard, show the synchronizer which parameters had a gradient in any."""
        for number in self._used:
            _, parameter = self._synchronizer.parameters[number]
            parameter.grad = Tensor._of(np.empty_like(parameter.raw), parameter._backend)

    def _take(self) -> None:
        for number, (_, parameter) in enumerate(self._synchronizer.parameters):
            if parameter.grad is not None:
                self._used.add(number)
                parameter.grad = None


class _Tree:
    """The part of the sums that goes into one bucket."""

    def __init__(self, bucket: Bucket, shards: int) -> None:
        self._bucket = bucket
        self._last = shards - 1
        self._waiting: Gradients = ()
        """Gradients of one shard that wait for the next one's."""
        self._sums = [np.zeros_like(bucket.flat) for _ in range(1, self._last.bit_length())]
        """Sums of 2, 4, ... shards that wait for as many."""

    def add(self, shard: int) -> None:
        """Take the gradients of ``shard``, counted from this rank's first."""
        slots = self._bucket.slots
        gradients = [
            None if slot.parameter.grad is None else staging.to_host(slot.parameter.grad) for slot in slots
        ]
        if shard == self._last:
            waiting = self._waiting if shard & 1 else None
            complete = [self._sums[level - 1] for level in range(1, shard.bit_length()) if shard >> level & 1]
            total = self._bucket.own()
        elif shard & 1:
            waiting = self._waiting
            level = (~shard & shard + 1).bit_length() - 1  # as many as the number has ones at its end
            complete, total = self._sums[: level - 1], self._sums[level - 1]
        else:
            self._waiting = gradients
            return
        for slot, first, second in zip(slots, waiting or [None] * len(slots), gradients, strict=True):
            _add(first, second, total[slot.start : slot.stop], waiting is None)
        self._waiting = ()
        for sums in complete:
            np.add(sums, total, out=total)


def _add(first: np.ndarray | None, second: np.ndarray | None, part: np.ndarray, alone: bool) -> None:
    """``part`` becomes the sum of both, or is a copy of ``second`` ``alone``; None is zero."""
    if first is not None and second is not None:
        np.add(first, second, out=part.reshape(first.shape))
        return
    given = second if first is None else first
    if given is None:
        part[...] = 0
    elif alone:
        np.copyto(part.reshape(given.shape), given)
    else:
        np.add(given, 0, out=part.reshape(given.shape))  # -0.0 becomes 0.0, as if zeros were added.
