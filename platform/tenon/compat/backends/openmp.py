"""torch's ``torch.backends.openmp``: kernels share out their work among threads of their own."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False: OpenMP is not called."""
    return False
