"""Data parallel training whose bits do not depend on the number of ranks: ``deterministic="world"``.

Each rank has the whole model, and sums the gradients of its shards in buckets, where the engine goes on over
the ranks. Ranks must compute whole branches of the tree: ``shards / ranks`` is a power of two, or there is
one rank. Next: ``shard_steps.py``.
"""

from __future__ import annotations

import numpy as np

from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import ReduceOp, combine
from tenon.distributed.replicas.buckets import Bucket, Reduction
from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.distributed.replicas.shard_order import ShardOrder, check_order
from tenon.distributed.replicas.shard_steps import (
    PROBED,
    SHARDS,
    Part,
    ShardSteps,
    check_modules,
    check_parameter,
    numbers_to_sum,
    refuse_engine,
)
from tenon.distributed.replicas.shard_sums import ShardSums
from tenon.nn.module import Module

__all__ = ["SHARDS", "LogicalShards", "Part", "check"]


class LogicalShards(ShardSteps):
    """Steps of ``model`` on batches split into ``shards``, with the gradients of ``synchronizer``; see
    ``ShardSteps``."""

    def __init__(
        self, model: Module, synchronizer: GradientSynchronizer, shards: int, threads: int, seed: int
    ) -> None:
        communicator = synchronizer.communicator
        check(shards, communicator.size, model)
        order = ShardOrder(shards, communicator)
        super().__init__(model, order, _ReplicaGradients(synchronizer, order.own), threads, seed)
        _check_engine(communicator, synchronizer.buckets[0])


class _ReplicaGradients:
    """The ``ShardGradients`` of data parallel: sums of this rank's shards in buckets, reduced once."""

    def __init__(self, synchronizer: GradientSynchronizer, own: int) -> None:
        self._synchronizer = synchronizer
        synchronizer.reduce = self._reduce
        synchronizer.replicated = True
        self._sums = ShardSums(synchronizer, own)
        self._count = 1.0

    def restart(self) -> None:
        """Reset the sums and the gradients."""
        self._sums.restart()

    def add(self) -> None:
        """Add the gradients of the last shard."""
        self._sums.add()

    def present(self) -> list[float]:
        """Nothing: the synchronizer counts the ranks that have a gradient."""
        return []

    def finish(self, count: float, ranks: int, present: np.ndarray) -> None:
        """Reduce the buckets. ``present`` is empty: no effect."""
        self._count = count
        self._sums.deliver()
        self._synchronizer.synchronize(taking_part=ranks)

    def _reduce(self, bucket: Bucket) -> _Mean:
        """Start the mean of ``bucket`` over all samples; see ``buckets.Reduce``."""
        work = self._synchronizer.communicator.start_all_reduce(bucket.flat, "sum", name=bucket.name)
        return _Mean(work, self._count)


class _Mean:
    """The quotient of a sum in progress and ``count``."""

    def __init__(self, work: Reduction, count: float) -> None:
        self._work = work
        self._count = count

    def wait(self) -> np.ndarray:
        total = self._work.wait()
        with np.errstate(all="ignore"):
            np.divide(total, total.dtype.type(self._count), out=total)
        return total


def check(shards: int, ranks: int, model: Module) -> None:
    """Raise unless each of ``ranks`` can compute one branch of the tree, and ``model`` can be trained so."""
    check_order(shards, ranks, 1)
    check_modules(model)
    for name, parameter in model.named_parameters():
        advice = "Keep parameters in float32, and compute in autocast."
        check_parameter(name, parameter, parameter.raw.dtype, advice)


def _check_engine(communicator: Communicator, bucket: Bucket) -> None:
    """Raise unless the engine sums as a tree over the ranks, tried on random numbers in ``bucket``."""
    flat = bucket.flat[:PROBED]
    flat[...] = numbers_to_sum(communicator.rank, flat.dtype, flat.shape)
    rows = communicator.all_gather(flat, name="numbers to add up").wait()
    expected = np.empty_like(flat)
    combine(list(rows), ReduceOp.SUM, expected)
    result = communicator.start_all_reduce(flat, "sum", name="numbers added up").wait()
    same = result.tobytes() == expected.tobytes()
    flat[...] = 0
    if not same:
        refuse_engine(communicator.name)
