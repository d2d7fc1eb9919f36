"""The version of tenon; ``pyproject.toml`` says the same."""

from __future__ import annotations

__version__ = "0.1.0"

#: Versions of what torch may be built with; nothing is built in here, and CuPy brings its own CUDA.
cuda: None = None
hip: None = None
xpu: None = None
debug = False
