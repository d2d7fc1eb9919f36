"""torch's ``torch._VF``: the functions of tensors, by the name under which torch's own layers call them.

Layers copied from torch say ``_VF.lstm(...)``; every function of ``tenon`` can be had here.
"""

from __future__ import annotations

from typing import Any

import tenon
from tenon.tensors.tensor import Tensor


def _add_relu(input: Tensor, other: Tensor | complex, *, alpha: float = 1) -> Tensor:
    """``relu(input + alpha * other)``."""
    return tenon.relu(tenon.add(input, other, alpha=alpha))


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # what Python asks of modules
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(tenon, name)
