"""Softmax and normalization; ``_saved`` returns the statistics for the gradient too."""

from __future__ import annotations

import math

import numpy as np


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Return ``exp(x) / sum(exp(x))`` along ``axis``."""
    if not x.size:
        return np.exp(x)
    powers = np.exp(x - x.max(axis if x.ndim else None, keepdims=True))
    return powers / powers.sum(axis if x.ndim else None, keepdims=True)


def safe_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Return ``softmax``, but 0 where all elements along ``axis`` are minus infinity."""
    if not x.size:
        return np.exp(x)
    return np.where(x.max(axis, keepdims=True) == -np.inf, x.dtype.type(0), softmax(x, axis))


def softmax_grad(g: np.ndarray, out: np.ndarray, axis: int) -> np.ndarray:
    """Return the gradient of ``softmax`` from its result."""
    weighted = g * out
    return weighted - out * weighted.sum(axis if out.ndim else None, keepdims=True)


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Return ``x - log(sum(exp(x)))`` along ``axis``."""
    if not x.size:
        return np.exp(x)
    shifted = x - x.max(axis if x.ndim else None, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis if x.ndim else None, keepdims=True))


def log_softmax_grad(g: np.ndarray, out: np.ndarray, axis: int) -> np.ndarray:
    """Return the gradient of ``log_softmax`` from its result."""
    return g - np.exp(out) * g.sum(axis if out.ndim else None, keepdims=True)


def logsumexp(x: np.ndarray, axes: tuple[int, ...], keepdims: bool = False) -> np.ndarray:
    """Return ``log(sum(exp(x)))`` over ``axes``."""
    if any(not x.shape[a] for a in axes):
        return np.log(np.exp(x).sum(axes, keepdims=keepdims))
    largest = x.max(axes, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, x.dtype.type(0))
    total = np.log(np.exp(x - largest).sum(axes, keepdims=True)) + largest
    return total if keepdims else total.squeeze(axes)


def layer_norm_saved(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, rank: int, eps: float = 1e-5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``layer_norm``, the mean, and the reciprocal of the standard deviation."""
    axes = tuple(range(x.ndim - rank, x.ndim))
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    deviation = 1 / np.sqrt((centred * centred).mean(axes, keepdims=True) + eps)
    result = centred * deviation
    if weight is not None:
        result = result * weight
    return result if bias is None else result + bias, mean, deviation


def layer_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, rank: int, eps: float = 1e-5
) -> np.ndarray:
    """Return ``x`` standardized over its last ``rank`` axes, times ``weight`` plus ``bias``."""
    return layer_norm_saved(x, weight, bias, rank, eps)[0]


def layer_norm_grad(
    g: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray | None,
    mean: np.ndarray,
    deviation: np.ndarray,
    rank: int,
    needs: tuple[bool, ...],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of ``layer_norm`` by input, weight and bias."""
    normal = (x - mean) * deviation
    axes, lead = tuple(range(x.ndim - rank, x.ndim)), tuple(range(x.ndim - rank))
    inner = g if weight is None else g * weight
    pull = inner.mean(axes, keepdims=True) + normal * (inner * normal).mean(axes, keepdims=True)
    dweight = (g * normal).sum(lead) if needs[1] else g
    return (inner - pull) * deviation, dweight, g.sum(lead) if needs[2] else g


def by_channel(values: np.ndarray, rank: int) -> np.ndarray:
    """Reshape a vector so that it broadcasts along axis 1 of ``rank`` axes."""
    return values.reshape(1, -1, *(1,) * (rank - 2))


def batch_norm_saved(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float = 1e-5
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return ``batch_norm``, then mean and reciprocal standard deviation with all axes."""
    axes = (0, *range(2, x.ndim))
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    variance = (centred * centred).mean(axes, keepdims=True)
    deviation = 1 / np.sqrt(variance + eps)
    result = channel_affine(centred * deviation, weight, bias)
    return result, mean.reshape(-1), variance.reshape(-1), mean, deviation


def batch_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float = 1e-5
) -> tuple[np.ndarray, ...]:
    """Return ``x`` standardized per channel over the batch; the mean; the variance."""
    return batch_norm_saved(x, weight, bias, eps)[:3]


def batch_norm_grad(
    g: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray | None,
    mean: np.ndarray,
    deviation: np.ndarray,
    needs: tuple[bool, ...],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of ``batch_norm`` by input, weight and bias."""
    axes = (0, *range(2, x.ndim))
    normal = (x - mean) * deviation
    dbias = g.sum(axes, keepdims=True)
    dweight = (g * normal).sum(axes, keepdims=True)
    count = max(math.prod(x.shape[a] for a in axes), 1)
    scale = deviation if weight is None else deviation * by_channel(weight, x.ndim)
    dx = (g - (dbias + normal * dweight) * (1.0 / count)) * scale if needs[0] else g
    return dx, dweight.reshape(-1), dbias.reshape(-1)


def batch_norm_inference(
    x: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    mean: np.ndarray,
    variance: np.ndarray,
    eps: float = 1e-5,
) -> np.ndarray:
    """Return ``x`` normalized per channel by given statistics, times ``weight`` plus ``bias``."""
    scale = 1 / np.sqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return x * by_channel(scale, x.ndim) + by_channel(shift, x.ndim)


def channel_affine(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None) -> np.ndarray:
    """Return ``x[:, c] * weight[c] + bias[c]``."""
    x = x if weight is None else x * by_channel(weight, x.ndim)
    return x if bias is None else x + by_channel(bias, x.ndim)


def channel_affine_grad(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray | None, needs: tuple[bool, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of ``channel_affine`` by input, weight and bias."""
    axes = (0, *range(2, x.ndim))
    dweight = (g * x).sum(axes) if needs[1] else g
    return channel_affine(g, weight, None), dweight, g.sum(axes) if needs[2] else g
