"""Batch norm of large float32 matrices, and scale and shift of channels, by compiled kernels."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.eager_ops.calls import FLOAT, plain, share
from tenon_cpu.jit.loops import along_axis, columns


def _vector(array: np.ndarray | None, size: int, default: float) -> np.ndarray:
    return np.full(size, default, FLOAT) if array is None else plain(array).reshape(-1)


def batch_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, *, eps: float = 1e-5
) -> tuple[np.ndarray, ...]:
    """Normalise a matrix's columns: result, mean, variance, and mean and reciprocal deviation as rows."""
    x, width = plain(x), x.shape[1]
    out, blocks = np.empty_like(x), -(-width // columns.WIDE)
    mean, variance, deviation = (np.empty(width, FLOAT) for _ in range(3))
    affine = _vector(weight, width, 1), _vector(bias, width, 0)
    share(
        columns.batch_norm, (x, *affine, np.float32(eps), out, mean, variance, deviation), blocks, 6 * x.size
    )
    return out, mean, variance, mean.copy().reshape(1, width), deviation.reshape(1, width)


def batch_norm_grad(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray | None, mean: np.ndarray, deviation: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The gradients of a matrix's batch norm for input, weight and bias, all three."""
    g, x, width = plain(g), plain(x), x.shape[1]
    dx, dweight, dbias = np.empty_like(x), np.empty(width, FLOAT), np.empty(width, FLOAT)
    vectors = _vector(weight, width, 1), _vector(mean, width, 0), _vector(deviation, width, 0)
    share(
        columns.batch_norm_grad, (g, x, *vectors, dx, dweight, dbias), -(-width // columns.WIDE), 6 * x.size
    )
    return dx, dweight, dbias


def _images(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:2], -1)


def channel_affine(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None) -> np.ndarray:
    """Scale and shift the channels of images in one pass."""
    x, channels = plain(x), x.shape[1]
    out = np.empty_like(x)
    affine = _vector(weight, channels, 1), _vector(bias, channels, 0)
    share(along_axis.scale_and_shift, (_images(x), *affine, _images(out)), x.shape[0], 2 * x.size)
    return out


def channel_affine_grad(g: np.ndarray, x: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """The gradients of ``channel_affine`` for input, weight and bias, all three, in one pass."""
    g, x, channels = plain(g), plain(x), x.shape[1]
    dx, dweight, dbias = np.empty_like(x), np.empty(channels, FLOAT), np.empty(channels, FLOAT)
    arrays = (_images(g), _images(x), _vector(weight, channels, 1), _images(dx), dweight, dbias)
    share(columns.scale_grad, arrays, channels, 3 * x.size)
    return dx, dweight, dbias


__all__ = ["batch_norm", "batch_norm_grad", "channel_affine", "channel_affine_grad"]
