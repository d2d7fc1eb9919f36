"""PyTorch's path ``nn.modules.flatten``; the code is in ``tenon.nn.layers.flatten``."""

from tenon.nn.layers.flatten import Flatten, Unflatten

__all__ = ["Flatten", "Unflatten"]
