"""Batch norm of large float32 matrices, and factors and summands of channels, by compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon_cpu.jit.eager_ops.calls import FLOAT, plain, share
from tenon_cpu.jit.loops import columns, lines


def _vector(given: Any, size: int, default: float) -> Any:
    return np.full(size, default, FLOAT) if given is None else plain(given).reshape(-1)


def batch_norm(x: Any, weight: Any, bias: Any, *, eps: float = 1e-5) -> Any:
    """Of a matrix."""
    x, width = plain(x), x.shape[1]
    out, blocks = np.empty_like(x), -(-width // columns.WIDE)
    mean, variance, deviation = (np.empty(width, FLOAT) for _ in range(3))
    affine = _vector(weight, width, 1), _vector(bias, width, 0)
    share(
        columns.batch_norm, (x, *affine, np.float32(eps), out, mean, variance, deviation), blocks, 6 * x.size
    )
    return out, mean, variance, mean.copy().reshape(1, width), deviation.reshape(1, width)


def batch_norm_grad(g: Any, x: Any, weight: Any, mean: Any, deviation: Any) -> Any:
    """All three gradients of a matrix's, whichever are needed."""
    g, x, width = plain(g), plain(x), x.shape[1]
    dx, dweight, dbias = np.empty_like(x), np.empty(width, FLOAT), np.empty(width, FLOAT)
    kept = _vector(weight, width, 1), _vector(mean, width, 0), _vector(deviation, width, 0)
    share(columns.batch_norm_grad, (g, x, *kept, dx, dweight, dbias), -(-width // columns.WIDE), 6 * x.size)
    return dx, dweight, dbias


def _images(x: Any) -> Any:
    return x.reshape(*x.shape[:2], -1)


def channel_affine(x: Any, weight: Any, bias: Any) -> Any:
    """One pass over images whose channels are long."""
    x, channels = plain(x), x.shape[1]
    out = np.empty_like(x)
    affine = _vector(weight, channels, 1), _vector(bias, channels, 0)
    share(lines.scale_and_shift, (_images(x), *affine, _images(out)), x.shape[0], 2 * x.size)
    return out


def channel_affine_grad(g: Any, x: Any, weight: Any) -> Any:
    """All three gradients in one pass, whichever are needed."""
    g, x, channels = plain(g), plain(x), x.shape[1]
    dx, dweight, dbias = np.empty_like(x), np.empty(channels, FLOAT), np.empty(channels, FLOAT)
    arrays = (_images(g), _images(x), _vector(weight, channels, 1), _images(dx), dweight, dbias)
    share(columns.scale_grad, arrays, channels, 3 * x.size)
    return dx, dweight, dbias


__all__ = ["batch_norm", "batch_norm_grad", "channel_affine", "channel_affine_grad"]
