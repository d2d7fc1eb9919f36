"""``amp_definitely_not_available``: whether mixed precision on CUDA is impossible on this machine."""

from __future__ import annotations

from tenon.cuda import is_available

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """Return whether this machine has no CUDA device."""
    return not is_available()
