"""PyTorch's path ``utils.data._utils.worker``; the code is in ``tenon.data``."""

from tenon.data import get_worker_info
from tenon.data.serving import WorkerInfo
from tenon.data.serving import numpy_seed as _generate_state

__all__ = ["WorkerInfo", "_generate_state", "get_worker_info"]
