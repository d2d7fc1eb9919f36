"""PyTorch's path ``torch.storage``; the memory behind tensors is in ``tenon.core.storage``."""

from tenon.core.storage import UntypedStorage
from tenon.core.typed_storage import TypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
