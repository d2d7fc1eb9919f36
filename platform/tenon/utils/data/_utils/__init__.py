"""PyTorch's path ``utils.data._utils``, from which many scripts take what collates."""

from tenon.compat.finder import submodules
from tenon.data.pool import PATIENCE as MP_STATUS_CHECK_INTERVAL
from tenon.data.worker_errors import ExceptionWrapper
from tenon.utils.data._utils import collate

__all__ = ["MP_STATUS_CHECK_INTERVAL", "ExceptionWrapper", "collate", "worker"]

__getattr__ = submodules(__name__)
