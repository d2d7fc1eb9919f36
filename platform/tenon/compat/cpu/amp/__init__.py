"""PyTorch's ``torch.cpu.amp``: deprecated names for ``tenon.amp`` with "cpu"."""

from __future__ import annotations

import warnings

from tenon import amp, dtypes

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):
    """``tenon.amp.autocast("cpu", ...)``."""

    def __init__(
        self, enabled: bool = True, dtype: dtypes.dtype | None = dtypes.bfloat16, cache_enabled: bool = True
    ) -> None:
        _warn_deprecated("autocast")
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """``tenon.amp.GradScaler("cpu", ...)``."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _warn_deprecated("GradScaler")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def _warn_deprecated(name: str) -> None:
    warnings.warn(
        f"torch.cpu.amp.{name}(args...) is deprecated. Please use torch.amp.{name}('cpu', args...) instead.",
        FutureWarning,
        stacklevel=3,
    )
