"""PyTorch's path ``torch.utils.serialization``."""

from tenon.utils.serialization import config

__all__ = ["config"]
