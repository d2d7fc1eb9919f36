"""torch's ``torch.backends.mps``: there is no backend for Apple's GPUs."""

from __future__ import annotations

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """False: Metal is not called."""
    return False


def is_built() -> bool:
    """False, as ``is_available``."""
    return False
