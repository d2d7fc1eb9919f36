"""PyTorch's path ``nn.modules.normalization``; the code is in ``tenon.nn.layers``."""

from tenon.nn.layers.norm import GroupNorm, LayerNorm, RMSNorm
from tenon.nn.layers.response_norm import CrossMapLRN2d, LocalResponseNorm

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]
