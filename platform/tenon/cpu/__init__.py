"""torch's ``torch.cpu``: what is said about devices in general, for the CPU."""

from __future__ import annotations

from typing import Any

from tenon.cpu import amp

__all__ = ["amp", "current_device", "device_count", "is_available", "is_initialized", "synchronize"]


def is_available() -> bool:
    """Always."""
    return True


def is_initialized() -> bool:
    """Always: there is nothing to start."""
    return True


def device_count() -> int:
    """One device, whatever the number of cores."""
    return 1


def current_device() -> str:
    """``"cpu"``."""
    return "cpu"


def synchronize(device: Any = None) -> None:
    """Nothing to wait for: operations are done when they return."""
