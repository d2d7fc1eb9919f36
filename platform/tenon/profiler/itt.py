"""PyTorch's module ``profiler.itt``: ranges for VTune, which tenon does not send."""

from __future__ import annotations


def is_available() -> bool:
    """False: ops are not shown to VTune as ranges. ``tenon.profiler.profile`` records them."""
    return False
