"""Batch norm of large float32 matrices, and factors and summands of channels, by compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import batch_norm as _batch_norm
from tenon.ops import batch_norm_grad as _batch_norm_grad
from tenon.ops import channel_affine as _channel_affine
from tenon.ops import channel_affine_grad as _channel_affine_grad
from tenon_cpu.jit import columns, lines
from tenon_cpu.jit.calls import FLOAT, WORTH, fits, plain, share

#: Elements of a channel in a row from which walking them one by one is quicker than NumPy's broadcasting.
_RUN = 16


def _vector(given: Any, size: int, default: float) -> Any:
    return np.full(size, default, FLOAT) if given is None else plain(given).reshape(-1)


def _fit(x: Any, *vectors: Any) -> bool:
    """They are of float32 and large, with an element for each channel."""
    given = [v for v in vectors if v is not None]
    return bool(x.size >= WORTH and fits(x, *given) and all(v.size == x.shape[1] for v in given))


def batch_norm(f: Any, x: Any, weight: Any, bias: Any, *, eps: float = 1e-5) -> Any:
    """Of a matrix; anything else by its parts."""
    if x.ndim != 2 or not _fit(x, weight, bias):
        return _batch_norm.raw_forward(f, x, weight, bias, eps=eps)
    x, width = plain(x), x.shape[1]
    out, blocks = np.empty_like(x), -(-width // columns.WIDE)
    mean, variance, deviation = (np.empty(width, FLOAT) for _ in range(3))
    affine = _vector(weight, width, 1), _vector(bias, width, 0)
    share(
        columns.batch_norm, (x, *affine, np.float32(eps), out, mean, variance, deviation), blocks, 6 * x.size
    )
    return out, mean, variance, mean.copy().reshape(1, width), deviation.reshape(1, width)


def batch_norm_grad(f: Any, g: Any, x: Any, weight: Any, mean: Any, deviation: Any, *, needs: Any) -> Any:
    """All three gradients of a matrix's, whichever are needed; others by their parts."""
    if x.ndim != 2 or g.shape != x.shape or not _fit(x, weight, mean, deviation) or not fits(g):
        return _batch_norm_grad.decompose(f, g, x, weight, mean, deviation, needs=needs)
    g, x, width = plain(g), plain(x), x.shape[1]
    dx, dweight, dbias = np.empty_like(x), np.empty(width, FLOAT), np.empty(width, FLOAT)
    kept = _vector(weight, width, 1), _vector(mean, width, 0), _vector(deviation, width, 0)
    share(columns.batch_norm_grad, (g, x, *kept, dx, dweight, dbias), -(-width // columns.WIDE), 6 * x.size)
    return dx, dweight, dbias


def _images(x: Any) -> Any:
    return x.reshape(*x.shape[:2], -1)


def channel_affine(f: Any, x: Any, weight: Any, bias: Any) -> Any:
    """One pass over images whose channels are long."""
    if not _fit(x, weight, bias) or x.size < _RUN * x.shape[0] * x.shape[1]:
        return _channel_affine.decompose(f, x, weight, bias)
    x, channels = plain(x), x.shape[1]
    out = np.empty_like(x)
    affine = _vector(weight, channels, 1), _vector(bias, channels, 0)
    share(lines.scale_and_shift, (_images(x), *affine, _images(out)), x.shape[0], 2 * x.size)
    return out


def channel_affine_grad(f: Any, g: Any, x: Any, weight: Any, *, needs: Any) -> Any:
    """All three gradients in one pass, whichever are needed."""
    if g.shape != x.shape or not _fit(x, weight) or not fits(g) or x.size < _RUN * x.shape[0] * x.shape[1]:
        return _channel_affine_grad.decompose(f, g, x, weight, needs=needs)
    g, x, channels = plain(g), plain(x), x.shape[1]
    dx, dweight, dbias = np.empty_like(x), np.empty(channels, FLOAT), np.empty(channels, FLOAT)
    arrays = (_images(g), _images(x), _vector(weight, channels, 1), _images(dx), dweight, dbias)
    share(columns.scale_grad, arrays, channels, 3 * x.size)
    return dx, dweight, dbias


COMPOSITES: dict[str, Kernel] = {
    "batch_norm": batch_norm,
    "batch_norm_grad": batch_norm_grad,
    "channel_affine": channel_affine,
    "channel_affine_grad": channel_affine_grad,
}

__all__ = ["COMPOSITES"]
