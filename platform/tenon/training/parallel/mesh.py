"""The mesh of a run: the sizes of its dimensions, and this rank's place in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tenon.device import Device
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.device_mesh import DeviceMesh
from tenon.errors import ConfigError
from tenon.training.sections import ParallelConfig

#: The dimensions, the slowest first: neighbours, which a node has more of, exchange most.
NAMES = ("pipeline", "data", "shard", "tensor")


@dataclass(frozen=True)
class Sizes:
    """The number of ranks along each dimension."""

    pipeline: int
    data: int
    shard: int
    tensor: int

    @classmethod
    def of(cls, config: ParallelConfig, ranks: int) -> Sizes:
        """The sizes for ``ranks`` ranks; ConfigError if they do not multiply to that.

        >>> Sizes.of(ParallelConfig(shard=2, tensor=2), 8)
        Sizes(pipeline=1, data=2, shard=2, tensor=2)
        """
        data, shard = config.data, config.shard
        if data == shard == -1:
            data = 1
        known = config.pipeline * config.tensor * math.prod(n for n in (data, shard) if n != -1)
        rest = ranks // known if ranks % known == 0 else 0
        data, shard = (rest if n == -1 else n for n in (data, shard))
        if config.pipeline * data * shard * config.tensor != ranks or not rest:
            given = ", ".join(f"{name} = {getattr(config, name)}" for name in NAMES)
            multiple = "a multiple of " if -1 in (config.data, config.shard) else ""
            raise ConfigError(
                f"parallel: {given} need {multiple}{known} ranks, but there are {ranks}. Start another number"
                " of ranks, or change the sizes: --set parallel.shard=-1 takes all that are left."
            )
        return cls(config.pipeline, data, shard, config.tensor)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes, in the order of ``NAMES``."""
        return self.pipeline, self.data, self.shard, self.tensor

    def __str__(self) -> str:
        """The dimensions of more than one rank, for people."""
        return " x ".join(f"{name} {size}" for name, size in zip(NAMES, self.shape, strict=True) if size > 1)


class Mesh:
    """The ranks of a run as a mesh of ``NAMES``; every rank creates it."""

    def __init__(self, sizes: Sizes, device: Device) -> None:
        self.sizes = sizes
        ranks = np.arange(math.prod(sizes.shape)).reshape(sizes.shape)
        self.devices = DeviceMesh(device.type, ranks, mesh_dim_names=NAMES)
        by_share = ranks.transpose(1, 2, 0, 3).reshape(self.shares, -1)
        #: By share of the batch, and by the ranks that compute this share.
        self._by_share = DeviceMesh(device.type, by_share, mesh_dim_names=("share", "team"))

    @property
    def share(self) -> int:
        """Which share of each batch this rank computes, of ``shares``."""
        return self._by_share.get_local_rank("share")

    @property
    def shares(self) -> int:
        """In how many shares a batch is divided."""
        return self.sizes.data * self.sizes.shard

    @property
    def team(self) -> Communicator:
        """The ranks that compute the same share."""
        return self._by_share.get_group("team")

    @property
    def replicas(self) -> Communicator:
        """The ranks that have the same part of the model, but for its shards."""
        return self._by_share.get_group("share")

    @property
    def stage(self) -> int:
        """This rank's stage of the pipeline."""
        return self.devices.get_local_rank("pipeline")

    @property
    def reports(self) -> bool:
        """Whether this rank counts the losses of its share: the first of those with the model's output."""
        return self.stage == self.sizes.pipeline - 1 and self.devices.get_local_rank("tensor") == 0
