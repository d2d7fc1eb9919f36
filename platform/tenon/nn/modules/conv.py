"""PyTorch's path ``nn.modules.conv``; the code is in ``tenon.nn.layers.conv``."""

from tenon.nn.layers.conv import Conv1d, Conv2d, Conv3d, _ConvNd
from tenon.nn.layers.lazy import LazyConv1d, LazyConv2d, LazyConv3d

__all__ = ["Conv1d", "Conv2d", "Conv3d", "LazyConv1d", "LazyConv2d", "LazyConv3d", "_ConvNd"]
