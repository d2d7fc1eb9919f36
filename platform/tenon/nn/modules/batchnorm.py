"""PyTorch's path ``nn.modules.batchnorm``; the code is in ``tenon.nn.layers.norm``."""

from tenon.nn.layers.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm, _NormBase

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "_BatchNorm", "_NormBase"]
