"""PyTorch's path ``nn.modules.lazy``."""

from tenon.nn.lazy import LazyModuleMixin

__all__ = ["LazyModuleMixin"]
