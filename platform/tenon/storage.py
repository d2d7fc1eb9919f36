"""PyTorch's path ``torch.storage``; the memory behind tensors is in ``tenon.core.storage``."""

from tenon.core.storage import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
