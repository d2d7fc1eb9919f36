"""``tenon.distributed.optim``: optimizers that know of other ranks."""

from tenon.distributed.local_sgd import PostLocalSGDOptimizer
from tenon.distributed.zero import ZeroRedundancyOptimizer

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]
