"""``torch.nn.attention``: selection of attention backends; tenon has a single implementation.

``F.scaled_dot_product_attention`` has one implementation for all devices, equivalent to PyTorch's math and
fused kernels (ADR 0022), so a context that allows any backend has no effect, and one that allows none raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import IntEnum

from tenon.errors import ArgumentError

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(IntEnum):
    """PyTorch's names of its attention backends."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """Context manager that restricts attention to ``backends``; ArgumentError if none is available.

    ``set_priority`` has no effect: there is a single implementation.
    """
    allowed = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(allowed, (list, tuple)) or not all(isinstance(b, SDPBackend) for b in allowed):
        raise TypeError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got"
            f" {type(backends).__name__}"
        )
    if all(b is SDPBackend.ERROR for b in allowed):
        raise ArgumentError(
            "sdpa_kernel: No viable backend for scaled_dot_product_attention: none was given. Name at least"
            " one."
        )
    yield
