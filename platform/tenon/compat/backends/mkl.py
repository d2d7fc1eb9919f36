"""torch's ``torch.backends.mkl``: NumPy brings a BLAS of its own."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False: Intel's MKL is not called."""
    return False
