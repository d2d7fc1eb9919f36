"""PyTorch's path ``nn.modules.instancenorm``; the code is in ``tenon.nn.layers``."""

from tenon.nn.layers.instance_norm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, _InstanceNorm
from tenon.nn.layers.lazy import LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d

__all__ = [
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "_InstanceNorm",
]
