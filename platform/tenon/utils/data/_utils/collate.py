"""PyTorch's path ``utils.data._utils.collate``; the code is in ``tenon.data``."""

from tenon.data import default_collate, default_convert

__all__ = ["default_collate", "default_convert"]
