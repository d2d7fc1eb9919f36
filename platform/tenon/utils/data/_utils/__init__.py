"""PyTorch's path ``utils.data._utils``, from which many scripts take what collates."""

from tenon.utils.data._utils import collate

__all__ = ["collate"]
