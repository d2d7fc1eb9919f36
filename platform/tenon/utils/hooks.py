"""PyTorch's path ``utils.hooks``; the code is in ``tenon.engine.handle`` and ``tenon.nn.backward_hooks``."""

from tenon.engine.handle import RemovableHandle
from tenon.nn.backward_hooks import BackwardHook

__all__ = ["BackwardHook", "RemovableHandle"]
