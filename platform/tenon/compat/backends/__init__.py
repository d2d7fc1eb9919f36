"""PyTorch's ``torch.backends``: settings of and queries about the libraries that PyTorch uses.

tenon's own backends are plugins (``tenon.extend``); these are PyTorch's flags, so that scripts which set them
run. Each documents its effect here: ``cuda.matmul.allow_tf32`` is ``set_float32_matmul_precision``; cuDNN,
MKL and Metal are not used, so their ``is_available`` returns False and their settings have no effect.
``einsum`` uses ``opt_einsum`` if that package is installed.
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
    """Store that flags may only be set by context managers (``flags``); this is not enforced."""
    global _frozen
    _frozen = True


def flags_frozen() -> bool:
    """Whether ``disable_global_flags`` was called."""
    return _frozen
