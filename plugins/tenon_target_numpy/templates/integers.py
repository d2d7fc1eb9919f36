"""Layers in 8-bit integers, ``real = (stored - zero_point) * scale``, with exact integer sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon_target_numpy.templates.convolution import conv


def exact_floats(inner: int, largest: int) -> Any:  # float32 or float64
    """Return the float type that is exact for sums of ``inner`` products of int8 with up to ``largest``."""
    return np.float32 if inner * largest * 128 <= 1 << 24 else np.float64


def integer_product(rows: np.ndarray, weight: np.ndarray, largest: int) -> np.ndarray:
    """Return the exact ``rows @ weight.T`` of integers."""
    kind = exact_floats(weight.shape[1], largest)
    return rows.astype(kind) @ weight.astype(kind).T


def to_steps(x: np.ndarray, step: float, zero: int) -> np.ndarray:
    """Quantize ``x`` to uint8: ``rint(x / step + zero)``, clipped to 0 to 255."""
    integers = np.rint(x.astype(np.float32) / np.float32(step) + np.float32(zero))
    return np.clip(integers, 0, 255).astype(np.uint8)


def scaled_sums(sums: np.ndarray, scale: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return ``sums * scale + bias`` in float32, along axis 1."""
    shape = (1, -1, *(1,) * (sums.ndim - 2))
    result = sums.astype(np.float32) * scale.astype(np.float32).reshape(shape)
    return result if bias is None else result + bias.astype(np.float32).reshape(shape)


def finished_sums(
    sums: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray | None,
    x_step: float,
    out_step: float | None,
    out_zero: int,
    relu: bool,
) -> np.ndarray:
    """Apply scales, bias and ReLU to exact sums, and quantize the result if ``out_step`` is set."""
    result = scaled_sums(sums, scale * np.float32(x_step), bias)
    result = np.maximum(result, np.float32(0)) if relu else result
    return result if out_step is None else to_steps(result, out_step, out_zero)


def int8_dynamic_linear(
    x: np.ndarray, weight: np.ndarray, scale: np.ndarray, bias: np.ndarray | None
) -> np.ndarray:
    """Return ``x @ (weight * scale).T + bias`` with ``x`` quantized by its largest magnitude."""
    rows = x.astype(np.float32).reshape(math.prod(x.shape[:-1]), x.shape[-1])
    size = np.float32(float(np.abs(rows).max()) if rows.size else 0)
    step, integers = size / np.float32(127), np.zeros(rows.shape, np.int8)
    if size < np.float32(1e-36) or not np.isfinite(size):
        step = np.float32(0 if np.isfinite(size) else np.nan)
    else:
        integers = np.rint(rows * (np.float32(127) / size)).astype(np.int8)
    result = scaled_sums(integer_product(integers, weight, 127), scale * step, bias)
    return result.reshape(*x.shape[:-1], weight.shape[0]).astype(x.dtype)


def int8_linear(
    x: np.ndarray,
    weight: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray | None,
    x_step: float,
    x_zero: int,
    out_step: float | None,
    out_zero: int,
    relu: bool,
) -> np.ndarray:
    """Return a linear layer of uint8 integers."""
    x = x if x.dtype == np.uint8 else to_steps(x, x_step, x_zero)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).astype(np.float32) - x_zero
    sums = integer_product(rows, weight, 255)
    result = finished_sums(sums, scale, bias, x_step, out_step, out_zero, relu)
    return result.reshape(*x.shape[:-1], weight.shape[0])


def int8_conv(
    x: np.ndarray,
    weight: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray | None,
    x_step: float,
    x_zero: int,
    out_step: float | None,
    out_zero: int,
    relu: bool,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """Return a convolution of uint8 integers; padding represents 0."""
    x = x if x.dtype == np.uint8 else to_steps(x, x_step, x_zero)
    kind = exact_floats(math.prod(weight.shape[1:]), 255)
    sums = conv(x.astype(kind) - kind(x_zero), weight.astype(kind), stride, padding, dilation, groups)
    return finished_sums(sums, scale, bias, x_step, out_step, out_zero, relu)


def int8_max_pool(
    x: np.ndarray, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]
) -> np.ndarray:
    """Return the maximum of each window of uint8."""
    wide = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    sizes = [(s - k) // t + 1 for s, k, t in zip(wide.shape[2:], kernel, stride, strict=True)]
    result = np.zeros((*x.shape[:2], *sizes), np.uint8)
    for position in np.ndindex(*kernel):
        region = (slice(a, a + t * (n - 1) + 1, t) for a, t, n in zip(position, stride, sizes, strict=True))
        result = np.maximum(result, wide[(slice(None), slice(None), *region)])
    return result
