"""``torch.cpu``: the functions of device modules, for the CPU."""

from __future__ import annotations

import functools
import importlib
import platform
import re

from tenon.compat.cpu import amp
from tenon.device import DeviceLike

__all__ = [
    "amp",
    "current_device",
    "device_count",
    "get_capabilities",
    "is_available",
    "is_initialized",
    "synchronize",
]


def is_available() -> bool:
    """Return True."""
    return True


def is_initialized() -> bool:
    """Return True: the CPU needs no initialization."""
    return True


def device_count() -> int:
    """Return 1, whatever the number of cores."""
    return 1


def current_device() -> str:
    """Return ``"cpu"``."""
    return "cpu"


def synchronize(device: DeviceLike = None) -> None:
    """Do nothing: operations have completed when they return."""


@functools.lru_cache
def _features() -> dict[str, bool]:
    """Return the processor features that NumPy detects, by PyTorch's names (``avx2``, ``avx512_vnni``)."""
    features: dict[str, bool] = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    return {
        re.sub(r"^avx512_?(?=.)", "avx512_", re.sub(r"^sse4(?=\d)", "sse4_", name.lower())): supported
        for name, supported in features.items()
    }


def get_capabilities() -> dict[str, object]:
    """Return the architecture, and for each instruction set that NumPy knows whether the processor has it."""
    return {"architecture": platform.machine(), **_features()}


def _is_avx2_supported() -> bool:
    return _features().get("avx2", False)


def _is_avx512_supported() -> bool:
    return _features().get("avx512_skx", False)


def _is_vnni_supported() -> bool:
    return _features().get("avx512_vnni", False)


def _is_avx512_bf16_supported() -> bool:
    return _features().get("avx512_bf16", False)
