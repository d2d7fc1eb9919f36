"""Pooling of ``x[N, C, *S]``; ``kernel``, ``stride``, ``padding`` have one entry per spatial axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

#: A key of NumPy's indexing: slices behind an ellipsis.
Key = tuple[Any, ...]


def pooled_sizes(
    sizes: Sequence[int],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[int, ...]:
    """Return the number of windows along each axis."""
    result = []
    for s, k, t, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        room = s + 2 * p - d * (k - 1) - 1 + (t - 1 if ceil_mode else 0)
        count = room // t + 1
        if ceil_mode and (count - 1) * t >= s + p:
            count -= 1  # a window must start inside the input or its left padding
        result.append(count)
    return tuple(result)


def inner_key(sizes: Sequence[int], padding: tuple[int, ...]) -> Key:
    """Return the key of the unpadded elements."""
    return (..., *(slice(p, p + s) for s, p in zip(sizes, padding, strict=True)))


def pad_to_windows(
    x: np.ndarray,
    sizes: Sequence[int],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    value: float,
) -> np.ndarray:
    """Pad ``x`` with ``value`` as far as the windows of an output of ``sizes`` reach."""
    reach = [
        max((n - 1) * t + d * (k - 1) + 1, p + s)
        for n, t, k, d, p, s in zip(sizes, stride, kernel, dilation, padding, x.shape[2:], strict=True)
    ]
    result = np.full((*x.shape[:2], *reach), value, x.dtype)
    result[inner_key(x.shape[2:], padding)] = x
    return result


def regions(
    sizes: Sequence[int], kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Iterator[Key]:
    """Yield, for every position in a window, the part of the padded input with its elements."""
    for position in np.ndindex(*kernel):
        yield (
            ...,
            *(
                slice(i * d, i * d + (n - 1) * t + 1, t)
                for i, d, n, t in zip(position, dilation, sizes, stride, strict=True)
            ),
        )


def lowest(dtype: np.dtype) -> float:
    """Return the smallest value of the dtype."""
    return float(np.iinfo(dtype).min) if dtype.kind in "iu" else -math.inf


def max_pool(
    x: np.ndarray,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
) -> np.ndarray:
    """Return the maximum of each window."""
    sizes = pooled_sizes(x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    wide = pad_to_windows(x, sizes, kernel, stride, padding, dilation, lowest(x.dtype))
    positions = regions(sizes, kernel, stride, dilation)
    result = wide[next(positions)].copy()
    for region in positions:
        np.maximum(result, wide[region], out=result)
    return result


def max_pool_grad(
    g: np.ndarray,
    x: np.ndarray,
    out: np.ndarray,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
) -> np.ndarray:
    """Return ``g`` at the first maximum of each window, or at its last NaN."""
    sizes = g.shape[2:]
    wide = pad_to_windows(x, sizes, kernel, stride, padding, dilation, lowest(x.dtype))
    inside = np.zeros(wide.shape[2:], np.bool_)
    inside[inner_key(x.shape[2:], padding)] = True
    result, remaining = np.zeros(wide.shape, g.dtype), g.copy()
    positions = list(regions(sizes, kernel, stride, dilation))
    for region in reversed(positions) if np.isnan(out).any() else ():
        chosen = np.isnan(wide[region]) & inside[region]
        result[region] += np.where(chosen, remaining, g.dtype.type(0))
        remaining[chosen] = 0
    for region in positions:
        chosen = (wide[region] == out) & inside[region]
        result[region] += np.where(chosen, remaining, g.dtype.type(0))
        remaining[chosen] = 0
    return np.ascontiguousarray(result[inner_key(x.shape[2:], padding)])


def max_pool_indices(
    x: np.ndarray,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
) -> np.ndarray:
    """Return the index, in the flattened spatial axes, of each window's first maximum."""
    sizes = pooled_sizes(x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    wide = pad_to_windows(x, sizes, kernel, stride, padding, dilation, lowest(x.dtype))
    elements = np.stack([wide[r] for r in regions(sizes, kernel, stride, dilation)], -1)
    is_nan = np.isnan(elements)[..., ::-1]
    last_nan = elements.shape[-1] - 1 - is_nan.argmax(-1)
    chosen = np.where(is_nan.any(-1), last_nan, elements.argmax(-1))
    flat = np.zeros(chosen.shape, np.int64)
    for axis, offset in enumerate(np.unravel_index(chosen, kernel)):
        first = np.arange(sizes[axis]) * stride[axis] - padding[axis]
        first = first.reshape(-1, *(1,) * (len(sizes) - axis - 1)) + offset * dilation[axis]
        flat = flat * x.shape[2 + axis] + np.where(first < 0, first % dilation[axis], first)
    return flat


def pool_divisors(
    inputs: Sequence[int],
    sizes: Sequence[int],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    include_pad: bool,
    divisor: int | None,
    dtype: np.dtype,
) -> np.ndarray:
    """Return the divisor of each window's sum."""
    if divisor is not None:
        return np.asarray(divisor, dtype)
    area = np.ones((), np.int64)
    for size, n, k, t, p in zip(inputs, sizes, kernel, stride, padding, strict=True):
        start = np.arange(n) * t - p
        stop = np.minimum(start + k, size + p)
        count = stop - start if include_pad else np.minimum(stop, size) - np.maximum(start, 0)
        area = np.multiply.outer(area, count)
    return area.astype(dtype)


def avg_pool(
    x: np.ndarray,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool = False,
    include_pad: bool = True,
    divisor: int | None = None,
) -> np.ndarray:
    """Return the mean of each window."""
    ones = (1,) * len(kernel)
    sizes = pooled_sizes(x.shape[2:], kernel, stride, padding, ones, ceil_mode)
    wide = pad_to_windows(x, sizes, kernel, stride, padding, ones, 0)
    total = np.zeros((*x.shape[:2], *sizes), x.dtype)
    for region in regions(sizes, kernel, stride, ones):
        total += wide[region]
    parts = pool_divisors(x.shape[2:], sizes, kernel, stride, padding, include_pad, divisor, x.dtype)
    if x.dtype.kind in "iu":  # rounded towards zero, as C divides
        return np.sign(total) * np.sign(parts) * (np.abs(total) // np.abs(parts))
    return total / parts


def avg_pool_grad(
    g: np.ndarray,
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool = False,
    include_pad: bool = True,
    divisor: int | None = None,
) -> np.ndarray:
    """Return each window's ``g`` over its divisor, added to all elements of the window."""
    ones, sizes = (1,) * len(kernel), g.shape[2:]
    part = g / pool_divisors(shape[2:], sizes, kernel, stride, padding, include_pad, divisor, g.dtype)
    result = pad_to_windows(np.zeros(shape, g.dtype), sizes, kernel, stride, padding, ones, 0)
    for region in regions(sizes, kernel, stride, ones):
        result[region] += part
    return np.ascontiguousarray(result[inner_key(shape[2:], padding)])


def averages(size: int, count: int, dtype: np.dtype) -> np.ndarray:
    """Return a matrix whose row i averages from ``floor(i size / count)`` to ``ceil((i + 1) size /
    count)``."""
    matrix = np.zeros((count, size), dtype)
    for i in range(count):
        start, stop = i * size // count, -(-(i + 1) * size // count)
        matrix[i, start:stop] = 1.0 / (stop - start)
    return matrix


def adaptive_avg_pool(x: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Return means of windows chosen so that the output has ``sizes``."""
    for axis, count in enumerate(sizes, 2):
        x = (x.swapaxes(axis, -1) @ averages(x.shape[axis], count, x.dtype).T).swapaxes(axis, -1)
    return np.ascontiguousarray(x)


def adaptive_avg_pool_grad(g: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the transpose of ``adaptive_avg_pool`` to an input of ``shape``."""
    for axis in range(2, len(shape)):
        g = (g.swapaxes(axis, -1) @ averages(shape[axis], g.shape[axis], g.dtype)).swapaxes(axis, -1)
    return np.ascontiguousarray(g)
