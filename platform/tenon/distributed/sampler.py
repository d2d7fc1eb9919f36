"""Samplers that divide a data set among the ranks.

``DistributedSampler`` is torch's, with torch's order: it repeats or drops samples so that all ranks get
equally many, which training needs but which makes evaluation wrong. ``ShardedSampler`` uses every sample
once, in shards that differ by at most one, so that sums over ranks are sums over the data set.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tenon.data.sampler import Sampler
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.world import get_communicator
from tenon.errors import DataError
from tenon.random import Generator, randperm

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class SamplerState(TypedDict):
    """The state of a ``DistributedSampler``."""

    epoch: int
    seed: int
    shuffle: bool
    taken: int
    """Samples of the epoch that all ranks together have taken."""


def _shard_of(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """The number of shards and the index of this rank's; by default the communicator's size and rank."""
    if num_replicas is None:
        num_replicas = get_communicator().size
    if rank is None:
        rank = get_communicator().rank
    if num_replicas < 1:
        raise DataError(f"num_replicas={num_replicas} must be at least 1.")
    if not 0 <= rank < num_replicas:
        raise DataError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
    return num_replicas, rank


def _order(length: int, shuffle: bool, seed: int) -> list[int]:
    """All indices, in torch's ``randperm`` order for ``seed`` if shuffled."""
    if not shuffle:
        return list(range(length))
    order: list[int] = randperm(Generator().manual_seed(seed), length).tolist()
    return order


class DistributedSampler(Sampler[int]):
    """torch's sampler: an equal share of ``dataset`` for each of ``num_replicas`` ranks.

    Without ``drop_last`` the first samples are repeated until ``num_replicas`` divides their number. With
    ``exact=True`` no sample is repeated or dropped, and shares may differ by one: use that for evaluation.
    Call ``set_epoch`` before each epoch, or every epoch has the same order.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        exact: bool = False,
    ) -> None:
        self.num_replicas, self.rank = _shard_of(num_replicas, rank)
        self._skipped = self._skip_next = 0
        if exact and drop_last:
            raise DataError("exact=True keeps every sample, drop_last=True does not. Give one of them.")
        self.dataset = dataset
        self.epoch = 0
        self.drop_last = drop_last
        self.exact = exact
        self.shuffle = shuffle
        self.seed = seed
        length = len(dataset)
        if exact:
            self.num_samples = len(range(self.rank, length, self.num_replicas))
            self.total_size = length
        else:
            even = length % self.num_replicas == 0
            share = (
                length // self.num_replicas
                if drop_last and not even
                else math.ceil(length / self.num_replicas)
            )
            self.num_samples = share
            self.total_size = share * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        self._skipped, self._skip_next = self._skip_next, 0
        order = _order(len(self.dataset), self.shuffle, self.seed + self.epoch)
        if self._skipped:
            return self._remaining_share(order)
        padding = self.total_size - len(order)
        if padding > 0 and order:
            order += (order * math.ceil(padding / len(order)))[:padding]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def _remaining_share(self, order: list[int]) -> Iterator[int]:
        """This rank's share of the samples of a resumed epoch; padded or truncated like a full epoch."""
        rest = order[self._skipped :]
        remainder = len(rest) % self.num_replicas
        if remainder and self.drop_last:
            rest = rest[:-remainder]
        elif remainder and not self.exact:
            rest += list(itertools.islice(itertools.cycle(order), self.num_replicas - remainder))
        return iter(rest[self.rank :: self.num_replicas])

    def state_dict(self, taken: int = 0) -> SamplerState:
        """The state of the last iteration after every rank has taken ``taken`` samples."""
        done = min(self._skipped + taken * self.num_replicas, len(self.dataset))
        return {"epoch": self.epoch, "seed": self.seed, "shuffle": self.shuffle, "taken": done}

    def load_state_dict(self, state: SamplerState) -> None:
        """Resume the next iteration after ``state``, which may come from another number of ranks."""
        for name, saved, own in (
            ("seed", state["seed"], self.seed),
            ("shuffle", state["shuffle"], self.shuffle),
        ):
            if saved != own:
                raise DataError(
                    f"the sampler's state has {name}={saved}, this sampler has {name}={own}, which gives"
                    " another order. Make it with the same options."
                )
        self.epoch = int(state["epoch"])
        self._skip_next = int(state["taken"])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose permutation the next iteration uses."""
        self.epoch = epoch


class ShardedSampler(DistributedSampler):
    """Every sample exactly once over all ranks; shards differ by at most one sample. Not shuffled by default.

    >>> [list(ShardedSampler(range(5), num_replicas=3, rank=rank)) for rank in range(3)]
    [[0, 3], [1, 4], [2]]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(dataset, num_replicas, rank, shuffle, seed, exact=True)


def reduce_sum_count(
    total: ArrayLike, count: ArrayLike, name: str | None = None, communicator: Communicator | None = None
) -> tuple[Any, Any]:  # floats or arrays, as the arguments are
    """Sums of ``total`` and ``count`` over all ranks, in float64: their ratio is the mean over all samples.

    The mean of per-rank means is wrong if ranks hold different numbers of samples. Both arguments are
    numbers, or sequences of numbers of the same length on every rank; the results are floats or arrays.
    """
    pair = np.stack([np.asarray(total, np.float64), np.asarray(count, np.float64)])
    communicator = get_communicator() if communicator is None else communicator
    sums = communicator.all_reduce(pair, "sum", name=name).wait()
    if sums.ndim == 1:
        return float(sums[0]), float(sums[1])
    return sums[0], sums[1]
