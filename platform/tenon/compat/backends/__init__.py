"""torch's ``torch.backends``: what scripts ask and set about the libraries behind torch.

tenon's own backends are plugins (``tenon.extend``); this is the place of torch's switches, so that a script
which sets them runs. Each says what it does here: ``cuda.matmul.allow_tf32`` is
``set_float32_matmul_precision``; cuDNN, MKL and Metal are not called, so their ``is_available`` is False and
what is set for them has no effect. ``opt_einsum`` is used by ``einsum`` where that package is installed.
"""

from __future__ import annotations

from tenon.compat.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, nnpack, openmp, quantized, xnnpack
from tenon.functions import contraction_order as opt_einsum

__all__ = [
    "cpu",
    "cuda",
    "cudnn",
    "disable_global_flags",
    "flags_frozen",
    "mkl",
    "mkldnn",
    "mps",
    "nnpack",
    "openmp",
    "opt_einsum",
    "quantized",
    "xnnpack",
]

_frozen = False


def disable_global_flags() -> None:
    """Note that switches are to be set by their blocks (``flags``) only; nothing here checks it."""
    global _frozen
    _frozen = True


def flags_frozen() -> bool:
    """Whether ``disable_global_flags`` was called."""
    return _frozen
