"""PyTorch's path ``nn.modules.normalization``; the code is in ``tenon.nn.layers.norm``."""

from tenon.nn.layers.norm import GroupNorm, LayerNorm, RMSNorm

__all__ = ["GroupNorm", "LayerNorm", "RMSNorm"]
