"""torch's path; the code is in ``tenon.distributed.local_sgd``."""

from tenon.distributed.local_sgd import ModelAverager, PeriodicModelAverager

__all__ = ["ModelAverager", "PeriodicModelAverager"]
