"""Numbers of a step that no metric holds."""

from __future__ import annotations

import math
from typing import Any

from tenon.extend import backend_for


def gradient_norm(model: Any) -> float:
    """The 2-norm of all gradients together, as the optimizer saw them (clipped, where they are)."""
    squares = 0.0
    for parameter in model.parameters():
        if parameter.grad is not None:
            squares += float(parameter.grad.detach().double().pow(2).sum().item())
    return math.sqrt(squares)


def megabytes(device: Any) -> float:
    """What the process (on the CPU) or its tensors (on a GPU) use now."""
    return backend_for(device).memory(device).used / 1e6
