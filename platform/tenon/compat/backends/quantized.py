"""torch's ``torch.backends.quantized``: engines for quantized tensors, of which there are none here.

Weights in int8 are stages of a module (``tenon.quantization``) and need no engine.
"""

from __future__ import annotations

__all__ = ["engine", "supported_engines"]

engine: str = "none"
supported_engines: list[str] = ["none"]
