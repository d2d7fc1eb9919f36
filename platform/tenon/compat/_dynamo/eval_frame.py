"""PyTorch's module ``torch._dynamo.eval_frame``; the code is in ``tenon.nn.optimized_module``."""

from tenon.nn.optimized_module import OptimizedModule

__all__ = ["OptimizedModule", "is_dynamo_supported"]


def is_dynamo_supported() -> bool:
    """Return True: ``tenon.compile`` works on every platform of tenon."""
    return True
