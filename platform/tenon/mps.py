"""torch's ``torch.mps``: there is no backend for Apple's GPUs."""

from __future__ import annotations

__all__ = ["device_count", "is_available"]


def is_available() -> bool:
    """False: there is no backend for them."""
    return False


def device_count() -> int:
    """0, as ``is_available``."""
    return 0
