"""The version of tenon, which ``pyproject.toml`` repeats."""

from __future__ import annotations

__version__ = "0.1.0"

#: Versions of libraries that PyTorch may be built with; None, as CuPy has its own CUDA.
cuda: None = None
hip: None = None
xpu: None = None
debug = False
