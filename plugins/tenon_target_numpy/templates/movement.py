"""Padding, windows, diagonals: ops that move elements."""

from __future__ import annotations

import numpy as np


def pad(x: np.ndarray, widths: tuple[tuple[int, int], ...], value: float = 0) -> np.ndarray:
    """Return ``x`` with every axis widened, or cut, by its two widths."""
    shape = [s + a + b for s, (a, b) in zip(x.shape, widths, strict=True)]
    result = np.full(shape, value, x.dtype)
    target = tuple(slice(max(a, 0), n - max(b, 0)) for (a, b), n in zip(widths, shape, strict=True))
    source = tuple(slice(max(-a, 0), s - max(-b, 0)) for (a, b), s in zip(widths, x.shape, strict=True))
    result[target] = x[source]
    return result


def split(x: np.ndarray, sizes: tuple[int, ...], axis: int) -> list[np.ndarray]:
    """Return consecutive pieces of ``sizes`` along ``axis``."""
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def unbind(x: np.ndarray, axis: int) -> list[np.ndarray]:
    """Return the slices along ``axis``."""
    return list(np.moveaxis(x, axis, 0))


def sum_to(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the sums over the axes along which ``shape`` was broadcast to that of ``x``."""
    lead = x.ndim - len(shape)
    axes = [i + lead for i, s in enumerate(shape) if s == 1 and x.shape[i + lead] != 1]
    return x.sum((*range(lead), *axes), keepdims=True, dtype=x.dtype).reshape(shape)


def window_of(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return zeros of ``shape`` with ``x`` in their corner."""
    result = np.zeros(shape, x.dtype)
    result[tuple(slice(0, s) for s in x.shape)] = x
    return result


def unfold_axis(x: np.ndarray, axis: int, size: int, step: int) -> np.ndarray:
    """Return the windows of ``size`` every ``step`` along ``axis``, as a new last axis."""
    if not x.ndim:
        return x.reshape(1)[:size]
    views = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    return views[(slice(None),) * axis + (slice(None, None, step),)]


def fold_axis(x: np.ndarray, shape: tuple[int, ...], axis: int, step: int) -> np.ndarray:
    """Return windows (last axis) summed back into an axis of ``shape``."""
    result = np.zeros(shape or (1,), x.dtype)
    lead, count = (slice(None),) * axis, x.shape[axis] if shape else 1
    for i in range(x.shape[-1]):
        result[(*lead, slice(i, i + (count - 1) * step + 1, step))] += x[..., i]
    return result.reshape(shape)


def diagonal_embed(
    x: np.ndarray, shape: tuple[int, ...], offset: int = 0, axis0: int = 0, axis1: int = 1
) -> np.ndarray:
    """Return zeros of ``shape`` with ``x`` on a diagonal."""
    result = np.zeros(shape, x.dtype)
    moved = np.moveaxis(result, (axis0, axis1), (-2, -1))
    places = np.arange(x.shape[-1])
    moved[..., places + max(-offset, 0), places + max(offset, 0)] = x
    return result
