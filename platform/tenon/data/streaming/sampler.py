"""``ShardSampler``: a shuffled order in which a few shards are read at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenon.distributed.sampler import DistributedSampler
from tenon.errors import DataError
from tenon.random import Generator, randperm


class ShardSampler(DistributedSampler):
    """Every sample once, shuffled within groups of ``shards_at_once`` shards that are drawn at random.

    For data sets that are larger than their cache. The order is a permutation that depends on ``seed``, the
    epoch (``set_epoch``) and ``shards_at_once`` alone: it is the same on any number of ranks and workers, and
    resumed on any other. It is not uniform over all permutations: samples of a group of shards stay together.
    With ``shards_at_once`` of at least their number it is.

    ``dataset`` is a ``StreamingDataset``. ``drop_last`` and ``exact`` are those of ``DistributedSampler``; by
    default all samples are kept and none is repeated.
    """

    def __init__(
        self,
        dataset: Any,  # a StreamingDataset, or another with ``shard_lengths``
        num_replicas: int | None = None,
        rank: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        *,
        shards_at_once: int = 16,
        exact: bool | None = None,
    ) -> None:
        if not hasattr(dataset, "shard_lengths"):
            raise DataError(
                f"ShardSampler orders the samples of a StreamingDataset, got {type(dataset).__name__}. Use"
                " DistributedSampler."
            )
        if isinstance(shards_at_once, bool) or not isinstance(shards_at_once, int) or shards_at_once < 1:
            raise DataError(f"ShardSampler: shards_at_once={shards_at_once!r} is not a positive integer.")
        exact = not drop_last if exact is None else exact
        super().__init__(dataset, num_replicas, rank, False, seed, drop_last, exact=exact)
        self.shards_at_once = shards_at_once
        self._lengths = np.asarray(dataset.shard_lengths, np.int64)

    def __iter__(self) -> Iterator[int]:
        positions = super().__iter__()  # not shuffled: positions in the order of this class
        order = self.order()
        return (int(order[position]) for position in positions)

    def order(self) -> np.ndarray:
        """The order of all samples in this epoch, over all ranks."""
        source = Generator().manual_seed(self.seed + self.epoch)
        starts = np.cumsum(self._lengths) - self._lengths
        shards = np.asarray(randperm(source, len(self._lengths)))
        groups = []
        for first in range(0, len(shards), self.shards_at_once):
            group = shards[first : first + self.shards_at_once]
            samples = np.concatenate([np.arange(starts[s], starts[s] + self._lengths[s]) for s in group])
            groups.append(samples[np.asarray(randperm(source, len(samples)))])
        return np.concatenate(groups)

    def state_dict(self, taken: int = 0) -> Any:  # a SamplerState, and ``shards_at_once``
        """The state of the last iteration after every rank has taken ``taken`` samples."""
        return {**super().state_dict(taken), "shards_at_once": self.shards_at_once}

    def load_state_dict(self, state: Any) -> None:  # likewise
        """Resume the next iteration after ``state``, which may come from another number of ranks."""
        if state.get("shards_at_once") != self.shards_at_once:
            raise DataError(
                f"the sampler's state has shards_at_once={state.get('shards_at_once')}, this sampler has"
                f" shards_at_once={self.shards_at_once}, which gives another order. Make it with the same"
                " options."
            )
        super().load_state_dict(state)
