"""Whether mixed precision on CUDA can be of use."""

from __future__ import annotations

from tenon.cuda import is_available

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """Whether there is no CUDA device here."""
    return not is_available()
