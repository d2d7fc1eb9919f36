"""PyTorch's path ``torch.ao``; what there is of it is ``tenon.quantization``."""

from tenon.ao import quantization

__all__ = ["quantization"]
