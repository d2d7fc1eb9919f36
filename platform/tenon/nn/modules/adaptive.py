"""PyTorch's path ``nn.modules.adaptive``; the code is in ``tenon.nn.layers.adaptive``."""

from tenon.nn.layers.adaptive import AdaptiveLogSoftmaxWithLoss

__all__ = ["AdaptiveLogSoftmaxWithLoss"]
