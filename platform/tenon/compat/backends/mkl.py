"""PyTorch's ``torch.backends.mkl``: not used, as NumPy has a BLAS of its own."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Return False: Intel's MKL is not used."""
    return False
