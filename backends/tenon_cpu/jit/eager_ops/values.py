"""Activations where no gradient will need their slopes: values only, of float32 and of bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon_cpu.jit.compiler.compile import available
from tenon_cpu.jit.eager_ops.calls import FLOAT, WORTH, aligned, share
from tenon_cpu.jit.loops import smooth
from tenon_cpu.jit.short_floats import smooth as short_smooth

_ALONE = {"gelu": smooth.gelu_alone, "gelu_tanh": smooth.gelu_tanh_alone, "silu": smooth.silu_alone}


def gelu(kernel: Kernel, x: Any, *, approximate: str = "none") -> Any:
    """The value in a tuple; from ``kernel``, with the slope, where loops do not serve."""
    found = _alone("gelu_tanh" if approximate == "tanh" else "gelu", x)
    return kernel(x, approximate=approximate) if found is None else found


def silu(kernel: Kernel, x: Any) -> Any:
    """As ``gelu``."""
    found = _alone("silu", x)
    return kernel(x) if found is None else found


def _alone(name: str, x: Any) -> tuple[Any, ...] | None:
    if x.size < WORTH or not available():
        return None
    if x.dtype is short_smooth.BFLOAT:
        return short_smooth.activated(name, x, slope=False)
    if x.dtype is not FLOAT:
        return None
    (x,), back = aligned(x)
    out = np.empty_like(x)
    share(_ALONE[name], (x.reshape(-1), out.reshape(-1)), x.size, 6 * x.size)
    return (out if back is None else out.transpose(back),)


#: By op name; they get the kernel that makes the residuals too.
VISIBLE: dict[str, Kernel] = {"gelu": gelu, "silu": silu}

__all__ = ["VISIBLE"]
