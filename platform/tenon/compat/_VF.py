"""PyTorch's module ``torch._VF``: the functions of tensors, as PyTorch's own layers call them.

Layers copied from PyTorch call ``_VF.lstm(...)``; every function of ``tenon`` is available here.
"""

from __future__ import annotations

from typing import Any

import tenon
from tenon.tensors.tensor import Tensor


def _add_relu(input: Tensor, other: Tensor | complex, *, alpha: float = 1) -> Tensor:
    """Return ``relu(input + alpha * other)``."""
    return tenon.relu(tenon.add(input, other, alpha=alpha))


def __getattr__(name: str) -> Any:  # of any type, as attributes of modules are
    if name.startswith("__"):  # protocols that Python looks up in modules
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(tenon, name)
