"""PyTorch's ``torch.cpu.amp``: deprecated names for ``tenon.amp`` with "cpu"."""

from __future__ import annotations

import functools
import warnings

from tenon import amp, dtypes
from tenon.amp.older_names import OlderGradScaler

__all__ = ["GradScaler", "autocast"]


def _warn_deprecated(name: str) -> None:
    warnings.warn(
        f"torch.cpu.amp.{name}(args...) is deprecated. Please use torch.amp.{name}('cpu', args...) instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """``tenon.amp.autocast("cpu", ...)``."""

    def __init__(
        self, enabled: bool = True, dtype: dtypes.dtype | None = dtypes.bfloat16, cache_enabled: bool = True
    ) -> None:
        _warn_deprecated("autocast")
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(OlderGradScaler):
    """``tenon.amp.GradScaler("cpu", ...)``."""

    _device_type = "cpu"
    _warn = staticmethod(functools.partial(_warn_deprecated, "GradScaler"))
