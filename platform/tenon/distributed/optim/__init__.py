"""``tenon.distributed.optim``: optimizers whose state is spread over the ranks."""

from tenon.distributed.zero import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
