"""torch's ``torch.backends.cuda``: whether CUDA is there, and how exact float32 products have to be."""

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
    """Whether there is a backend for CUDA here that can be used."""
    return cuda.is_available()


class _LinalgBackend(enum.Enum):
    """Libraries of linear algebra between which torch chooses on CUDA."""

    Default = "default"
    Cusolver = "cusolver"
    Magma = "magma"


_preferred = _LinalgBackend.Default


def preferred_linalg_library(backend: str | _LinalgBackend | None = None) -> _LinalgBackend:
    """Note which library scripts prefer, without effect: CuPy has cuSOLVER alone; the one noted last."""
    global _preferred
    if backend is not None:
        names = [each.value for each in _LinalgBackend]
        if not isinstance(backend, _LinalgBackend) and backend not in names:
            raise ArgumentError(f"Unknown input value {backend!r}. Choose from: {', '.join(names)}.")
        _preferred = _LinalgBackend(backend)
    return _preferred


class _Products:
    """The type of ``matmul``."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may use fewer bits, as by ``set_float32_matmul_precision``."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_float32_matmul_precision("high" if allowed else "highest")


#: Settings of matrix products.
matmul = _Products()

#: Which of torch's kernels of attention may run. Here is one for every case, so this is only kept.
_allowed = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def enable_flash_sdp(enabled: bool) -> None:
    """Note whether flash attention may run."""
    _allowed["flash"] = enabled


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Note whether attention that saves memory may run."""
    _allowed["mem_efficient"] = enabled


def enable_math_sdp(enabled: bool) -> None:
    """Note whether plain attention may run."""
    _allowed["math"] = enabled


def enable_cudnn_sdp(enabled: bool) -> None:
    """Note whether cuDNN's attention may run."""
    _allowed["cudnn"] = enabled


def flash_sdp_enabled() -> bool:
    """What ``enable_flash_sdp`` was told."""
    return _allowed["flash"]


def mem_efficient_sdp_enabled() -> bool:
    """What ``enable_mem_efficient_sdp`` was told."""
    return _allowed["mem_efficient"]


def math_sdp_enabled() -> bool:
    """What ``enable_math_sdp`` was told."""
    return _allowed["math"]


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """As the switches, inside the ``with`` block."""
    before = dict(_allowed)
    _allowed.update(
        flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
    )
    try:
        yield
    finally:
        _allowed.update(before)
