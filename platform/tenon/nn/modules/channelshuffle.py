"""PyTorch's path ``nn.modules.channelshuffle``; the code is in ``tenon.nn.layers``."""

from tenon.nn.layers.resizing import ChannelShuffle

__all__ = ["ChannelShuffle"]
