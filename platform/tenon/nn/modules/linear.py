"""PyTorch's path ``nn.modules.linear``; the code is in ``tenon.nn.layers.linear``."""

from tenon.nn.layers.attention import NonDynamicallyQuantizableLinear
from tenon.nn.layers.lazy import LazyLinear
from tenon.nn.layers.linear import Bilinear, Identity, Linear

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear", "NonDynamicallyQuantizableLinear"]
