"""torch's older path ``torch.cuda.amp``: mixed precision for CUDA; the code is in ``tenon.amp``."""

from __future__ import annotations

import warnings
from typing import Any

from tenon import amp
from tenon.dtypes import dtype, float16

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


def _older(name: str, newer: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{newer}` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """``tenon.autocast("cuda", ...)``."""

    def __init__(self, enabled: bool = True, dtype: dtype = float16, cache_enabled: bool = True) -> None:
        _older("autocast", "autocast('cuda', args...)")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """``tenon.amp.GradScaler("cuda", ...)``."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _older("GradScaler", "GradScaler('cuda', args...)")
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Any = None, *, cast_inputs: dtype | None = None) -> Any:
    """``tenon.amp.custom_fwd`` for ``device_type="cuda"``."""
    _older("custom_fwd", "custom_fwd(args..., device_type='cuda')")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """``tenon.amp.custom_bwd`` for ``device_type="cuda"``."""
    _older("custom_bwd", "custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")
