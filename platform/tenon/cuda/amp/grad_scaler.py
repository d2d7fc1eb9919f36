"""``GradScaler`` for CUDA under its older name."""

from __future__ import annotations

import functools

from tenon.amp.older_names import OlderGradScaler
from tenon.cuda.amp.autocast_mode import older

__all__ = ["GradScaler"]


class GradScaler(OlderGradScaler):
    """``tenon.amp.GradScaler("cuda", ...)`` under its older name."""

    _device_type = "cuda"
    _warn = staticmethod(functools.partial(older, "GradScaler", "GradScaler('cuda', args...)"))
