"""PyTorch's path ``serialization``; the code is in ``tenon.serialize``."""

from tenon.serialize import load, save

__all__ = ["load", "save"]
