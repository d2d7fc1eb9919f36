"""PyTorch's path ``utils.data.dataloader``; the code is in ``tenon.data``."""

from tenon.data import DataLoader, default_collate, default_convert, get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
