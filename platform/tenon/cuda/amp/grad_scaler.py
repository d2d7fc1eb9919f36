"""``GradScaler`` for CUDA under its older name."""

from __future__ import annotations

from tenon import amp
from tenon.cuda.amp.autocast_mode import older

__all__ = ["GradScaler"]


class GradScaler(amp.GradScaler):
    """``tenon.amp.GradScaler("cuda", ...)`` under its older name."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        older("GradScaler", "GradScaler('cuda', args...)")
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
