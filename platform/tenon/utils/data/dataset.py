"""PyTorch's path ``utils.data.dataset``; the code is in ``tenon.data.dataset``."""

from tenon.data.dataset import Dataset, TensorDataset

__all__ = ["Dataset", "TensorDataset"]
