"""PyTorch's path ``profiler.itt``: ranges for VTune, which are not sent."""

from __future__ import annotations


def is_available() -> bool:
    """False: ops are not shown to VTune as ranges. ``tenon.profiler.profile`` records them."""
    return False
