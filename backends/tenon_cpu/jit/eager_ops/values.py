"""Activations without their slopes, which only gradients need, of float32 and of bfloat16."""

from __future__ import annotations

import numpy as np

from tenon.extend import Kernel
from tenon_cpu.jit.compiler.compile import available
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS, aligned, share
from tenon_cpu.jit.loops import smooth
from tenon_cpu.jit.short_floats import smooth as short_smooth

_ALONE = {"gelu": smooth.gelu_alone, "gelu_tanh": smooth.gelu_tanh_alone, "silu": smooth.silu_alone}


def gelu(kernel: Kernel, x: np.ndarray, *, approximate: str = "none") -> tuple[np.ndarray, ...]:
    """``(value,)``; the result of ``kernel``, with the slope, if no compiled loop supports ``x``."""
    result = _alone("gelu_tanh" if approximate == "tanh" else "gelu", x)
    return kernel(x, approximate=approximate) if result is None else result


def silu(kernel: Kernel, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """``(value,)``, by the rules of ``gelu``."""
    result = _alone("silu", x)
    return kernel(x) if result is None else result


def _alone(name: str, x: np.ndarray) -> tuple[np.ndarray, ...] | None:
    if x.size < MIN_ELEMENTS or not available():
        return None
    if x.dtype is short_smooth.BFLOAT:
        return short_smooth.activated(name, x, slope=False)
    if x.dtype is not FLOAT:
        return None
    (x,), back = aligned(x)
    out = np.empty_like(x)
    share(_ALONE[name], (x.reshape(-1), out.reshape(-1)), x.size, 6 * x.size)
    return (out if back is None else out.transpose(back),)


#: By op name: functions of the kernel that also returns the residuals, and of the op's arguments.
VISIBLE: dict[str, Kernel] = {"gelu": gelu, "silu": silu}

__all__ = ["VISIBLE"]
