"""PyTorch's path ``utils._mode_utils``."""

from tenon.ops.standing import no_dispatch

__all__ = ["no_dispatch"]
