"""Activations of large float32 arrays, by compiled kernels."""

from __future__ import annotations

import math

import numpy as np

from tenon_cpu.jit.compiler.compile import Kernel as Compiled
from tenon_cpu.jit.eager_ops.calls import aligned, share
from tenon_cpu.jit.loops import activations

_ZERO, _INFINITY = np.float32(0), np.float32(math.inf)


def _with_slope(kernel: Compiled, x: np.ndarray, cost: int) -> tuple[np.ndarray, np.ndarray]:
    """The value and slope of an activation, at ``cost`` tenths of ns an element."""
    (x,), back = aligned(x)
    out, slope = np.empty_like(x), np.empty_like(x)
    share(kernel, (x.reshape(-1), out.reshape(-1), slope.reshape(-1)), x.size, cost * x.size)
    return (out, slope) if back is None else (out.transpose(back), slope.transpose(back))


def gelu(x: np.ndarray, *, approximate: str = "none") -> tuple[np.ndarray, np.ndarray]:
    """The value and slope of GELU."""
    return _with_slope(activations.gelu_tanh if approximate == "tanh" else activations.gelu, x, 7)


def silu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The value and slope of SiLU."""
    return _with_slope(activations.silu, x, 5)


def relu(x: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
    """The larger of ``x`` and 0; ``out`` is ``x`` (6.7 us on 65,536 elements, NumPy 25: it is not vectorised
    for an array and a number)."""
    if out is not None:
        share(activations.clamp_inplace, (x.reshape(-1), _ZERO, _INFINITY), x.size, x.size)
        return out
    (x,), back = aligned(x)
    out = np.empty_like(x)
    share(activations.relu, (x.reshape(-1), out.reshape(-1)), x.size, x.size)
    return out if back is None else out.transpose(back)


def clamp(
    x: np.ndarray, min: float | None, max: float | None, *, out: np.ndarray | None = None
) -> np.ndarray | None:
    """Clamp ``x``, which is ``out``, in place between two numbers."""
    bounds = (-math.inf if min is None else min, math.inf if max is None else max)
    share(activations.clamp_inplace, (x.reshape(-1), *(np.float32(b) for b in bounds)), x.size, x.size)
    return out


def relu_grad(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """``g`` where ``out`` is positive, else 0."""
    (g, out), back = aligned(g, out)
    dx = np.empty_like(g)
    share(activations.relu_grad, (g.reshape(-1), out.reshape(-1), dx.reshape(-1)), g.size, g.size)
    return dx if back is None else dx.transpose(back)
