"""Measurements of a step: gradient norm and memory."""

from __future__ import annotations

import math

from tenon.extend import Device, Module, backend_for, errors


def gradient_norm(model: Module) -> float:
    """The 2-norm of all gradients together, as used by the optimizer (after clipping)."""
    squares = 0.0
    for parameter in model.parameters():
        if parameter.grad is not None:
            squares += float(parameter.grad.detach().double().pow(2).sum().item())
    return math.sqrt(squares)


def megabytes(device: Device) -> float | None:
    """The memory in use by the process (on the CPU) or by its tensors (on a GPU), in MB.

    None if the backend does not report it.
    """
    try:
        return backend_for(device).memory(device).used / 1e6
    except errors.BackendError:
        return None
