"""Gradients of logical shards, added up as one tree over all shards while they come, in little memory.

The tree is ``reduction.combine``'s, ((0, 1), (2, 3)). A rank computes consecutive shards, one after another:
sums of 1, 2, 4, ... of them wait for their sibling, as carries do in binary counting. What is left at the end
is a whole branch, or the whole tree, and lies in the buckets, where the engine goes on with the same tree.
A shard without a gradient counts as zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.core.tensor import Tensor
from tenon.distributed import staging
from tenon.distributed.buckets import Bucket
from tenon.distributed.gradients import GradientSynchronizer

Array = np.ndarray[Any, Any]


class ShardSums:
    """The sum of the gradients of ``shards`` shards, in the buckets of ``synchronizer``."""

    def __init__(self, synchronizer: GradientSynchronizer, shards: int) -> None:
        self._synchronizer = synchronizer
        self._shards = shards
        self._done = 0
        self._used: set[int] = set()
        levels = range((shards - 1).bit_length())
        self._levels = [[np.zeros_like(bucket.flat) for _ in levels] for bucket in synchronizer.buckets]
        """For each bucket the sums of 1, 2, 4, ... shards that wait for their sibling."""

    def restart(self) -> None:
        """Begin with the first shard, without gradients."""
        self._synchronizer.restart()
        self._done = 0
        self._take()
        self._used.clear()

    def add(self) -> None:
        """Take the gradients of the shard that was computed last; none are left."""
        with np.errstate(all="ignore"):
            for bucket, levels in zip(self._synchronizer.buckets, self._levels, strict=True):
                self._add_bucket(bucket, levels)
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

    def _add_bucket(self, bucket: Bucket, levels: list[Array]) -> None:
        shard = self._done
        if shard == self._shards - 1:
            _fill(bucket)
            for level, waiting in enumerate(levels):
                if shard >> level & 1:
                    np.add(waiting, bucket.flat, out=bucket.flat)
        elif shard & 1:
            _fill(bucket)
            total = bucket.flat
            carried = (~shard & shard + 1).bit_length() - 1  # The ones at the end of the shard's number.
            for level in range(carried):
                out = levels[carried] if level == carried - 1 else bucket.flat
                total = np.add(levels[level], total, out=out)
        else:
            for slot in bucket.slots:
                part, gradient = levels[0][slot.start : slot.stop], slot.parameter.grad
                if gradient is None:
                    part[...] = 0
                else:
                    host = staging.to_host(gradient)
                    np.copyto(part.reshape(host.shape), host)


def _fill(bucket: Bucket) -> None:
    for index in range(len(bucket.slots)):
        bucket.fill(index)
