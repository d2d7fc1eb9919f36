"""PyTorch's ``torch.backends.cuda``: whether CUDA is available, and the precision of float32 products."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator

from tenon import cuda
from tenon.errors import ArgumentError
from tenon.functions.settings import get_float32_matmul_precision, set_float32_matmul_precision

__all__ = [
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "is_built",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_linalg_library",
    "sdp_kernel",
]


def is_built() -> bool:
    """Whether CUDA is available."""
    return cuda.is_available()


class _LinalgBackend(enum.Enum):
    """The linear algebra libraries of PyTorch on CUDA."""

    Default = "default"
    Cusolver = "cusolver"
    Magma = "magma"


_preferred = _LinalgBackend.Default


def preferred_linalg_library(backend: str | _LinalgBackend | None = None) -> _LinalgBackend:
    """Store the preferred library and return it; no effect, as CuPy only has cuSOLVER."""
    global _preferred
    if backend is not None:
        names = [each.value for each in _LinalgBackend]
        if not isinstance(backend, _LinalgBackend) and backend not in names:
            raise ArgumentError(f"Unknown input value {backend!r}. Choose from: {', '.join(names)}.")
        _preferred = _LinalgBackend(backend)
    return _preferred


class _MatmulSettings:
    """The type of ``matmul``."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may use TF32, as set by ``set_float32_matmul_precision``."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_float32_matmul_precision("high" if allowed else "highest")


#: Settings of matrix products.
matmul = _MatmulSettings()

#: Which of PyTorch's attention kernels may run; stored without effect, as one kernel serves all cases here.
_allowed = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def enable_flash_sdp(enabled: bool) -> None:
    """Store whether flash attention may run."""
    _allowed["flash"] = enabled


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Store whether memory-efficient attention may run."""
    _allowed["mem_efficient"] = enabled


def enable_math_sdp(enabled: bool) -> None:
    """Store whether the reference implementation of attention may run."""
    _allowed["math"] = enabled


def enable_cudnn_sdp(enabled: bool) -> None:
    """Store whether cuDNN's attention may run."""
    _allowed["cudnn"] = enabled


def flash_sdp_enabled() -> bool:
    """Return the value of ``enable_flash_sdp``."""
    return _allowed["flash"]


def mem_efficient_sdp_enabled() -> bool:
    """Return the value of ``enable_mem_efficient_sdp``."""
    return _allowed["mem_efficient"]


def math_sdp_enabled() -> bool:
    """Return the value of ``enable_math_sdp``."""
    return _allowed["math"]


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """Set the flags within a ``with`` block."""
    before = dict(_allowed)
    _allowed.update(
        flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
    )
    try:
        yield
    finally:
        _allowed.update(before)
