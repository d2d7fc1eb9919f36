"""PyTorch's path ``utils.data.distributed``; the code is in ``tenon.distributed.sampler``."""

from tenon.distributed.sampler import DistributedSampler

__all__ = ["DistributedSampler"]
