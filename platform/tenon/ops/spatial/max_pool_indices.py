"""Indices of the largest element of windows that are not evenly spaced.

``adaptive_max_pool_indices`` chooses windows for a given number of outputs,
``fractional_max_pool_indices`` by random samples, plane by plane. Both return indices into the flattened
spatial axes of ``x[N, C, *S]``; values and gradients follow by ``gather``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace
from tenon.errors import ShapeError
from tenon.ops.spatial.pooling import window_argmax

_INT = np.dtype(np.int64)


def adaptive_bounds(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first element of each of ``count`` windows, and the one after its last."""
    i = np.arange(count)
    return i * size // count, -(-(i + 1) * size // count)


def _first_largest(xp: ArrayNamespace, x: Array, axes: Sequence[Array]) -> Array:
    """Return the flat index of the first largest element of each window.

    ``axes`` holds, per spatial axis, the indices ``[planes or 1, windows, window size]``.
    """
    rank, planes = len(axes), x.shape[0] * x.shape[1]
    flat = xp.zeros((1,) * (2 * rank + 1), _INT)
    for axis, indices in enumerate(axes):
        shape = [indices.shape[0], *(1,) * (2 * rank)]
        shape[1 + axis], shape[1 + rank + axis] = indices.shape[1:]
        flat = flat * x.shape[2 + axis] + indices.reshape(shape)
    counts, reach = flat.shape[1 : 1 + rank], math.prod(flat.shape[1 + rank :])
    flat = xp.broadcast_to(flat, (planes, *flat.shape[1:])).reshape(planes, math.prod(counts), reach)
    cells = x.reshape(planes, math.prod(x.shape[2:]))
    elements = xp.take_along_axis(cells, flat.reshape(planes, flat.shape[1] * reach), 1).reshape(flat.shape)
    chosen = window_argmax(xp, elements)
    result = xp.take_along_axis(flat, chosen.reshape(planes, flat.shape[1], 1), 2)
    return xp.ascontiguousarray(result.reshape(*x.shape[:2], *counts))


class AdaptiveMaxPoolIndices(Primitive):
    """The index of the first largest element of each of ``sizes`` windows that cover ``x`` evenly."""

    kind = Kind.WINDOW
    follows = 1

    def infer(self, x, *, sizes):
        """int64 in ``sizes``."""
        if len(x.shape) != len(sizes) + 2 or 0 in x.shape[1:]:
            raise ShapeError(
                f"adaptive_max_pool{len(sizes)}d(): Expected input to have non-zero size for non-batch"
                f" dimensions, but input has sizes {list(x.shape)}"
            )
        if min(sizes) < 0:
            raise ShapeError(f"Trying to create tensor with negative dimension: {[*x.shape[:2], *sizes]}")
        return Aval((*x.shape[:2], *sizes), _INT)

    def forward(self, xp, x, *, sizes):
        """All windows at once, the shorter ones with their last element repeated."""
        shape = self.infer(x, sizes=sizes).shape
        if 0 in shape:
            return xp.zeros(shape, _INT)
        axes = []
        for size, count in zip(x.shape[2:], sizes, strict=True):
            first, stop = adaptive_bounds(size, count)
            indices = np.minimum(first[:, None] + np.arange((stop - first).max()), stop[:, None] - 1)
            axes.append(xp.asarray(indices[None]))
        return _first_largest(xp, x, axes)


def fractional_starts(
    xp: ArrayNamespace,
    samples: Array,
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    sizes: tuple[int, ...],
) -> list[Array]:
    """Return, per spatial axis, the start of each window of every plane, ``[planes, windows]``."""
    rank = len(kernel)
    drawn, result = samples.reshape(-1, rank), []
    for axis, (s, k, n) in enumerate(zip(shape, kernel, sizes, strict=True)):
        # PyTorch uses the first sample for the last axis of images, but for the first of volumes.
        sample = drawn[:, rank - 1 - axis if rank == 2 else axis][:, None]
        step = sample.dtype.type(s - k) / sample.dtype.type(n - 1) if n > 1 else sample.dtype.type(0)
        count = xp.arange(n).astype(sample.dtype)
        first = ((count + sample) * step).astype(_INT) - (sample * step).astype(_INT)
        first[:, n - 1] = s - k
        result.append(first)
    return result


class FractionalMaxPoolIndices(Primitive):
    """The index of the first largest element of windows of ``kernel`` placed by ``samples[N, C, rank]``."""

    kind = Kind.WINDOW
    follows = 1
    inputs = ("x", "samples")

    def infer(self, x, samples, *, kernel, sizes):
        """int64 in ``sizes``."""
        rank = len(kernel)
        sample_shape = tuple(samples.shape)
        if len(sample_shape) != 3:
            raise ShapeError(f"Expect _random_samples to have 3 dimensions, got {len(sample_shape)}")
        for axis, (size, expected, requirement) in enumerate(
            (
                (sample_shape[0], x.shape[0], "no less then input batch size"),
                (sample_shape[1], x.shape[1], "equals to input channel size"),
                (sample_shape[2], rank, f"equals to {rank}; got {sample_shape[2]}"),
            )
        ):
            if size != expected:
                raise ShapeError(
                    f"Expect _random_samples.size({axis}) {requirement}. It is {list(sample_shape)}, the"
                    f" input {list(x.shape)}"
                )
        names = ("time", "height", "width")[3 - rank :]
        for name, s, k, n in zip(names, x.shape[2:], kernel, sizes, strict=True):
            if n + k - 1 > s:
                raise ShapeError(
                    f"fractional_max_pool{rank}d(): pool {name} {k} too large relative to input {name} {s}"
                    f" for an output of {n}"
                )
        return Aval((*x.shape[:2], *sizes), _INT)

    def forward(self, xp, x, samples, *, kernel, sizes):
        """Windows advance by a fraction from a random start; the last one ends at the edge."""
        shape = self.infer(x, samples, kernel=kernel, sizes=sizes).shape
        if 0 in shape:
            return xp.zeros(shape, _INT)
        starts = fractional_starts(xp, samples, x.shape[2:], kernel, sizes)
        axes = [first[:, :, None] + xp.arange(k) for first, k in zip(starts, kernel, strict=True)]
        return _first_largest(xp, x, axes)


adaptive_max_pool_indices, fractional_max_pool_indices = AdaptiveMaxPoolIndices(), FractionalMaxPoolIndices()
