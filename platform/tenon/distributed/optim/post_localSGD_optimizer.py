"""torch's path; the code is in ``tenon.distributed.local_sgd``."""

from tenon.distributed.local_sgd import PostLocalSGDOptimizer

__all__ = ["PostLocalSGDOptimizer"]
