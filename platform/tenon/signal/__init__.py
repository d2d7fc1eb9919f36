"""``torch.signal``: windows for signals."""

from tenon.signal import windows

__all__ = ["windows"]
