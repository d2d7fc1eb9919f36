"""PyTorch's path ``nn.modules.conv``; the code is in ``tenon.nn.layers.conv``."""

from tenon.nn.layers.conv import Conv1d, Conv2d, Conv3d, _ConvNd

__all__ = ["Conv1d", "Conv2d", "Conv3d", "_ConvNd"]
