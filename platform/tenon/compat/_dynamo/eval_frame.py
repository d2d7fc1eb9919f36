"""PyTorch's path for the module that ``compile`` returns; the code is in ``tenon.nn.optimized_module``."""

from tenon.nn.optimized_module import OptimizedModule

__all__ = ["OptimizedModule", "is_dynamo_supported"]


def is_dynamo_supported() -> bool:
    """True: ``tenon.compile`` works wherever tenon does."""
    return True
