"""PyTorch's path ``utils.data._utils``, from which many scripts take what collates."""

from tenon._utils import ExceptionWrapper
from tenon.data.pool import PATIENCE as MP_STATUS_CHECK_INTERVAL
from tenon.utils.data._utils import collate, worker

__all__ = ["MP_STATUS_CHECK_INTERVAL", "ExceptionWrapper", "collate", "worker"]
