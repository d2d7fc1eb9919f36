"""PyTorch's module ``profiler.itt``: ranges for VTune, which tenon does not send."""

from __future__ import annotations


def is_available() -> bool:
    """Return False: ops are not reported to VTune. ``tenon.profiler.profile`` records them."""
    return False
