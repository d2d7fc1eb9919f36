"""PyTorch's ``torch.backends.quantized``: engines for quantized tensors, which are not supported.

Int8 weights are stages of a module (``tenon.quantization``) and need no engine.
"""

from __future__ import annotations

__all__ = ["engine", "supported_engines"]

engine: str = "none"
supported_engines: list[str] = ["none"]
