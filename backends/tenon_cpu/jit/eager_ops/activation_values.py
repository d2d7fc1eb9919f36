"""Activations without their slopes, which only gradients need, of float32 and of bfloat16."""

from __future__ import annotations

import numpy as np

from tenon.extend import Kernel
from tenon_cpu.jit.compiler.compile import available
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS, aligned, share
from tenon_cpu.jit.loops import activations
from tenon_cpu.jit.short_floats import activations as short_activations

_VALUES = {
    "gelu": activations.gelu_value,
    "gelu_tanh": activations.gelu_tanh_value,
    "silu": activations.silu_value,
}


def gelu(kernel: Kernel, x: np.ndarray, *, approximate: str = "none") -> tuple[np.ndarray, ...]:
    """Return ``(value,)``; if no compiled loop supports ``x``, the result of ``kernel``, which has the slope
    too."""
    result = _value_of("gelu_tanh" if approximate == "tanh" else "gelu", x)
    return kernel(x, approximate=approximate) if result is None else result


def silu(kernel: Kernel, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return ``(value,)``, or as ``gelu`` the result of ``kernel``."""
    result = _value_of("silu", x)
    return kernel(x) if result is None else result


def _value_of(name: str, x: np.ndarray) -> tuple[np.ndarray, ...] | None:
    if x.size < MIN_ELEMENTS or not available():
        return None
    if x.dtype is short_activations.BFLOAT:
        return short_activations.activated(name, x, slope=False)
    if x.dtype is not FLOAT:
        return None
    (x,), back = aligned(x)
    out = np.empty_like(x)
    share(_VALUES[name], (x.reshape(-1), out.reshape(-1)), x.size, 6 * x.size)
    return (out if back is None else out.transpose(back),)


#: Op name -> a function of the kernel that also computes residuals, and of the op's arguments.
VISIBLE: dict[str, Kernel] = {"gelu": gelu, "silu": silu}

__all__ = ["VISIBLE"]
