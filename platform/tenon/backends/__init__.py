"""torch's ``torch.backends``: what scripts ask and set about the libraries behind torch.

tenon's own backends are plugins (``tenon.extend``); this is the place of torch's switches, so that a script
which sets them runs. Each says what it does here: ``cuda.matmul.allow_tf32`` is
``set_float32_matmul_precision``; cuDNN, MKL and Metal are not called, so their ``is_available`` is False and
what is set for them has no effect.
"""

from __future__ import annotations

from tenon.backends import cuda, cudnn, mkl, mkldnn, mps, nnpack, openmp, quantized

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "nnpack", "openmp", "quantized"]
