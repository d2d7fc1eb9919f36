"""PyTorch's path ``utils.data._utils``, from which many scripts take what collates."""

from tenon._utils import ExceptionWrapper
from tenon.utils.data._utils import collate, worker

__all__ = ["ExceptionWrapper", "collate", "worker"]
