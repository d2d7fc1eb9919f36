"""``torch.mps``, ``torch.mtia`` and ``torch.xpu``: devices for which there is no backend."""

from __future__ import annotations

__all__ = ["device_count", "is_available"]


def is_available() -> bool:
    """False: there is no backend for them."""
    return False


def device_count() -> int:
    """0, as ``is_available``."""
    return 0
