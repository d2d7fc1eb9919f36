"""PyTorch's path ``torch.ao``; what there is of it is ``tenon.quantization``."""

from tenon.ao import nn, quantization

__all__ = ["nn", "quantization"]
