"""``torch.mps``, ``torch.mtia`` and ``torch.xpu``: devices without a backend."""

from __future__ import annotations

__all__ = ["device_count", "is_available"]


def is_available() -> bool:
    """Return False: there is no backend for the device."""
    return False


def device_count() -> int:
    """Return 0: there is no backend for the device."""
    return 0
