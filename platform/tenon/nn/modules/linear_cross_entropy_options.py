"""PyTorch's path ``nn.modules.linear_cross_entropy_options``; the code is in ``tenon.nn.functional``."""

from tenon.nn.functional.linear_classes import LinearCrossEntropyOptions

__all__ = ["LinearCrossEntropyOptions"]
