"""PyTorch's path ``utils.data``; the code is in ``tenon.data`` and ``tenon.distributed``."""

from tenon.data.dataset import Dataset, TensorDataset
from tenon.distributed.sampler import DistributedSampler

__all__ = ["Dataset", "DistributedSampler", "TensorDataset"]
