"""PyTorch's path ``utils.data._utils.worker``; the code is in ``tenon.data``."""

from tenon.data import get_worker_info
from tenon.data.serving import WorkerInfo

__all__ = ["WorkerInfo", "get_worker_info"]
