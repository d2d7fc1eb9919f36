"""PyTorch's path ``nn.modules.fold``; the code is in ``tenon.nn.layers``."""

from tenon.nn.layers.resizing import Fold, Unfold

__all__ = ["Fold", "Unfold"]
