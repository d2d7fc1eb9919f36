"""Sum the gradients of logical shards as one tree over all shards, incrementally, in little memory.

The tree is that of ``reduction.combine``: ((0, 1), (2, 3)). A rank computes consecutive shards one after
another; sums of 1, 2, 4, ... of them wait for their sibling, like carries in binary addition. The result is
the sum of a branch, or of the tree, in the buckets, where the engine continues the same tree over the ranks.
A shard without a gradient counts as zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.distributed.communication import staging
from tenon.distributed.replicas.buckets import Bucket
from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.tensors.tensor import Tensor

#: The gradients of a bucket's parameters.
Gradients = Sequence[np.ndarray | None]


class ShardSums:
    """The sum of the gradients of ``shards`` shards, in the buckets of ``synchronizer``."""

    def __init__(self, synchronizer: GradientSynchronizer, shards: int) -> None:
        self._synchronizer = synchronizer
        self._done = 0
        self._used: set[int] = set()
        self._trees = [_Tree(bucket, shards) for bucket in synchronizer.buckets]

    def restart(self) -> None:
        """Reset the sums and the gradients before the first shard of a step."""
        self._synchronizer.restart()
        self._done = 0
        self._clear_gradients()
        self._used.clear()

    def add(self) -> None:
        """Add the gradients of the last computed shard, and set them to None."""
        with np.errstate(all="ignore"):
            for tree in self._trees:
                tree.add(self._done)
        self._done += 1
        self._clear_gradients()

    def deliver(self) -> None:
        """After the last shard, set a ``grad``, of any values, of each parameter that had one in any shard.

        The synchronizer replaces its values by those in the buckets.
        """
        for number in self._used:
            _, parameter = self._synchronizer.parameters[number]
            parameter.grad = Tensor._of(np.empty_like(parameter.raw), parameter._backend)

    def _clear_gradients(self) -> None:
        """Set all gradients to None, and record which existed."""
        for number, (_, parameter) in enumerate(self._synchronizer.parameters):
            if parameter.grad is not None:
                self._used.add(number)
                parameter.grad = None


class _Tree:
    """The sums for one bucket."""

    def __init__(self, bucket: Bucket, shards: int) -> None:
        self._bucket = bucket
        self._last = shards - 1
        self._waiting: Gradients = ()
        """The gradients of a shard of even number, until the next is added."""
        self._sums = [np.zeros_like(bucket.flat) for _ in range(1, self._last.bit_length())]
        """Sums of 2, 4, ... shards, until the sum of as many following shards is complete."""

    def add(self, shard: int) -> None:
        """Add the gradients of ``shard``, counted from this rank's first."""
        slots = self._bucket.slots
        gradients = [
            None if slot.parameter.grad is None else staging.to_host(slot.parameter.grad) for slot in slots
        ]
        if shard == self._last:
            waiting = self._waiting if shard & 1 else None
            complete = [self._sums[level - 1] for level in range(1, shard.bit_length()) if shard >> level & 1]
            total = self._bucket.claim()
        elif shard & 1:
            waiting = self._waiting
            level = (~shard & shard + 1).bit_length() - 1  # the number of trailing ones
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
    """Write ``first + second`` into ``part``, or a copy of ``second`` if it is ``alone``; None is zero."""
    if first is not None and second is not None:
        np.add(first, second, out=part.reshape(first.shape))
        return
    term = second if first is None else first
    if term is None:
        part[...] = 0
    elif alone:
        np.copyto(part.reshape(term.shape), term)
    else:
        np.add(term, 0, out=part.reshape(term.shape))  # -0.0 becomes 0.0, as in a sum with zeros
