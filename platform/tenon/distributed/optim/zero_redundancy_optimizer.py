"""torch's path; the code is in ``tenon.distributed.zero``."""

from tenon.distributed.zero import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
