"""PyTorch's ``torch.backends.mps``: there is no backend for Apple's GPUs."""

from __future__ import annotations

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """Return False: Metal is not used."""
    return False


def is_built() -> bool:
    """Return False: Metal is not used."""
    return False
