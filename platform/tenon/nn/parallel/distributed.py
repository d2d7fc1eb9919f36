"""PyTorch's path ``nn.parallel.distributed``; the code is in ``tenon.distributed.data_parallel``."""

from tenon.distributed.data_parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
