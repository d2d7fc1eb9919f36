"""PyTorch's path ``nn.parallel.distributed``; the code is in ``tenon.distributed.replicas.data_parallel``."""

from tenon.distributed.replicas.data_parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
