"""Convolution ``x[N, C, *S]`` with ``weight[O, C / groups, *K]`` in any number of spatial axes."""

from __future__ import annotations

import math

import numpy as np


def windows(
    x: np.ndarray, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> np.ndarray:
    """View the windows of ``x[N, C, *S]`` as ``[N, C, *S', *K]``."""
    axes = tuple(range(2, x.ndim))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    steps = (slice(None, None, t) for t in stride)
    inner = (slice(None, None, d) for d in dilation)
    return views[(slice(None), slice(None), *steps, *inner)]


def padded(x: np.ndarray, padding: tuple[int, ...]) -> np.ndarray:
    """Pad the spatial axes of ``x`` with zeros on both sides."""
    return np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)]) if any(padding) else x


def columns(
    x: np.ndarray,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """Return the windows of ``x`` as matrices ``[groups, C / groups * prod(K), N * prod(S')]``."""
    rank, channels = len(kernel), x.shape[1] // groups
    views = windows(padded(x, padding), kernel, stride, dilation)
    sizes = views.shape[2 : 2 + rank]
    views = views.reshape(x.shape[0], groups, channels, *views.shape[2:])
    order = (1, 2, *range(3 + rank, 3 + 2 * rank), 0, *range(3, 3 + rank))
    shape = (groups, channels * math.prod(kernel), x.shape[0] * math.prod(sizes))
    return views.transpose(order).reshape(shape)


def conv(
    x: np.ndarray,
    weight: np.ndarray,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """Convolve: a product of the weights and the windows, group by group."""
    kernel = weight.shape[2:]
    sizes = [
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, t, p, d in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    ]
    matrices = weight.reshape(groups, weight.shape[0] // groups, math.prod(weight.shape[1:]))
    result = matrices @ columns(x, kernel, stride, padding, dilation, groups)
    return np.ascontiguousarray(result.reshape(weight.shape[0], x.shape[0], *sizes).swapaxes(0, 1))


def convolution(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """Convolve, and add ``bias`` per output channel."""
    result = conv(x, weight, stride, padding, dilation, groups)
    return result + bias.reshape(-1, *(1,) * len(stride))


def conv_input_grad(
    g: np.ndarray,
    weight: np.ndarray,
    sizes: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """Return the gradient of ``conv`` by an input of ``sizes``: the transposed convolution of ``g``."""
    kernel, batch, outs = weight.shape[2:], g.shape[0], g.shape[2:]
    per_group, channels = weight.shape[0] // groups, weight.shape[1] * groups
    matrices = weight.reshape(groups, per_group, math.prod(weight.shape[1:])).swapaxes(1, 2)
    spread = g.swapaxes(0, 1).reshape(groups, per_group, batch * math.prod(outs))
    parts = (matrices @ spread).reshape(channels, *kernel, batch, *outs)
    whole = (s + 2 * p for s, p in zip(sizes, padding, strict=True))
    result = np.zeros((batch, channels, *whole), parts.dtype)
    for position in np.ndindex(*kernel):
        region: tuple[slice, ...] = tuple(
            slice(i * d, i * d + (n - 1) * t + 1, t)
            for i, d, n, t in zip(position, dilation, outs, stride, strict=True)
        )
        result[(slice(None), slice(None), *region)] += parts[(slice(None), *position)].swapaxes(0, 1)
    inner: tuple[slice, ...] = tuple(slice(p, p + s) for s, p in zip(sizes, padding, strict=True))
    return np.ascontiguousarray(result[(slice(None), slice(None), *inner)])


def conv_weight_grad(
    x: np.ndarray,
    g: np.ndarray,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """Return the gradient of ``conv`` by its weight, of spatial size ``kernel``."""
    patches = columns(x, kernel, stride, padding, dilation, groups)
    rows = g.swapaxes(0, 1).reshape(groups, g.shape[1] // groups, patches.shape[2])
    return (rows @ patches.swapaxes(1, 2)).reshape(g.shape[1], x.shape[1] // groups, *kernel)
