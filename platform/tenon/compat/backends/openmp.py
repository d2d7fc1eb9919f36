"""PyTorch's ``torch.backends.openmp``: not used, as kernels use threads of their own."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Return False: OpenMP is not used."""
    return False
