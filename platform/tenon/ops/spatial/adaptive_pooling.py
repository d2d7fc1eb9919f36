"""Average pooling to a given output size: window sizes follow from it."""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.sharding_rule import along
from tenon.engine.types import Array, ArrayNamespace
from tenon.errors import ShapeError


class AdaptiveAvgPool(Primitive):
    """Means of windows that are chosen so that the output has ``sizes``."""

    kind = Kind.WINDOW
    follows = 1
    computes_in_float32 = True
    autocast = "float32 in space"
    autocast_cuda = ""

    def sharding_rule(self, x, *, sizes):
        """Samples and channels are independent."""
        return along(x.shape, range(-len(sizes), 0), linear="jointly", filled=True)

    def infer(self, x, *, sizes):
        """Batch, channels, ``sizes``."""
        if len(x.shape) != len(sizes) + 2 or 0 in x.shape[2:]:
            raise ShapeError(
                f"adaptive_avg_pool{len(sizes)}d(): Expected input to have non-zero size for non-batch"
                f" dimensions, but input has sizes {list(x.shape)}"
            )
        if any(s < 0 for s in sizes):
            raise ShapeError(
                f"adaptive_avg_pool: elements of output_size must be greater than or equal to 0, got {sizes}"
            )
        return Aval((*x.shape[:2], *sizes), x.dtype)

    def forward(self, xp, x, *, sizes):
        """One small averaging matrix per axis."""
        self.infer(x, sizes=sizes)
        result = x
        for axis, count in enumerate(sizes, 2):
            result = _along(xp, result, _averages(xp, x.shape[axis], count, x.dtype), axis)
        return xp.ascontiguousarray(result)

    def vjp_x(self, f, g, out, x, *, sizes):
        return f.adaptive_avg_pool_grad(g, shape=tuple(x.shape))

    def torch_name(self, args, attrs):
        """PyTorch computes a mean for a single window."""
        is_mean = all(s == 1 for s in attrs["sizes"])
        return "MeanBackward1" if is_mean else f"AdaptiveAvgPool{max(len(attrs['sizes']), 2)}DBackward0"


class AdaptiveAvgPoolGrad(Primitive):
    """The transpose of ``adaptive_avg_pool``."""

    kind = Kind.WINDOW
    inputs = ("g",)
    computes_in_float32 = True

    def infer(self, g, *, shape):
        """The pooled input's shape."""
        if 0 in g.shape[2:]:
            raise ShapeError(
                f"adaptive_avg_pool{len(shape) - 2}d_backward(): Expected grad_output to have non-zero size"
                f" for non-batch dimensions, but grad_output has sizes {list(g.shape)}"
            )
        return Aval(tuple(shape), g.dtype)

    def forward(self, xp, g, *, shape):
        """The averaging matrices, transposed."""
        self.infer(g, shape=shape)
        result = g
        for axis in range(2, len(shape)):
            result = _along(xp, result, _averages(xp, shape[axis], g.shape[axis], g.dtype).T, axis)
        return xp.ascontiguousarray(result)

    def vjp_g(self, f, g, out, gradient, *, shape):
        return f.adaptive_avg_pool(g, sizes=tuple(gradient.shape[2:]))


def _averages(xp: ArrayNamespace, size: int, count: int, dtype: np.dtype) -> Array:
    """Return a matrix ``[count, size]`` whose row i averages from ``floor(i size / count)`` to ``ceil((i +
    1) size / count)``."""
    matrix = np.zeros((count, size), dtype)
    for i in range(count):
        start, stop = i * size // count, -(-(i + 1) * size // count)
        matrix[i, start:stop] = 1.0 / (stop - start)
    return xp.asarray(matrix)


def _along(xp: ArrayNamespace, x: Array, matrix: Array, axis: int) -> Array:
    """Multiply ``x`` by ``matrix`` along ``axis``."""
    result = xp.swapaxes(xp.matmul(xp.swapaxes(x, axis, x.ndim - 1), matrix.T), axis, x.ndim - 1)
    return result.astype(x.dtype, copy=False)  # NumPy multiplies bfloat16 matrices into float32


adaptive_avg_pool, adaptive_avg_pool_grad = AdaptiveAvgPool(), AdaptiveAvgPoolGrad()
