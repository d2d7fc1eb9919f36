"""torch's ``torch.nn.attention``: a choice among ways of computing attention, of which there is one here.

``F.scaled_dot_product_attention`` computes what torch's math and fused kernels compute, in one way for all
devices (ADR 0022), so a region that allows any of them changes nothing, and one that allows none is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import IntEnum

from tenon.errors import ArgumentError

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(IntEnum):
    """torch's names of its ways of computing attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """A region in which attention may be computed in these ways; ArgumentError if there is none of them.

    ``set_priority`` has no effect: there is one way of computing attention.
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
