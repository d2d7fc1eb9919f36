"""``autocast`` for CUDA and its decorators, under their older names; each call warns of that."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from tenon import amp
from tenon.dtypes import dtype, float16

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


def older(name: str, newer: str) -> None:
    """Warn that ``torch.cuda.amp.<name>`` is deprecated in favour of ``torch.amp.<newer>``."""
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{newer}` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """``tenon.autocast("cuda", ...)`` under its older name, with a deprecation warning."""

    def __init__(self, enabled: bool = True, dtype: dtype = float16, cache_enabled: bool = True) -> None:
        older("autocast", "autocast('cuda', args...)")
        super().__init__("cuda", dtype, enabled, cache_enabled)


def custom_fwd(
    fwd: Callable[..., object] | None = None, *, cast_inputs: dtype | None = None
) -> Callable[..., object]:
    """Return ``fwd`` decorated by ``tenon.amp.custom_fwd`` for ``device_type="cuda"``; deprecated."""
    older("custom_fwd", "custom_fwd(args..., device_type='cuda')")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., object]) -> Callable[..., object]:
    """Return ``bwd`` decorated by ``tenon.amp.custom_bwd`` for ``device_type="cuda"``; deprecated."""
    older("custom_bwd", "custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")
