"""torch's path; the code is in ``tenon.distributed.local_sgd``."""

from tenon.distributed.local_sgd import HierarchicalModelAverager

__all__ = ["HierarchicalModelAverager"]
