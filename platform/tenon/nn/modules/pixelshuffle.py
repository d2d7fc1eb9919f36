"""PyTorch's path ``nn.modules.pixelshuffle``; the code is in ``tenon.nn.layers``."""

from tenon.nn.layers.resizing import PixelShuffle, PixelUnshuffle

__all__ = ["PixelShuffle", "PixelUnshuffle"]
