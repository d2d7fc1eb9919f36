"""PyTorch's path ``nn.modules.upsampling``; the code is in ``tenon.nn.layers``."""

from tenon.nn.layers.resizing import Upsample, UpsamplingBilinear2d, UpsamplingNearest2d

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]
