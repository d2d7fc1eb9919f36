"""Batch norm of the columns of a float32 matrix, and a factor and a summand for each channel of images.

Columns are walked in blocks of ``WIDE``, row by row; sums are of float32 over ``BLOCK`` rows, of float64 over
all. Threads share the blocks, or the channels.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.rows import BLOCK
from tenon_cpu.jit.loops.vectors import plus

_ZERO, _ONE = np.float32(0), np.float32(1)
#: Columns at a time: 64 rows of as many are 64 KB.
WIDE = 256


@inlined
def empty(part, whole):
    """Add the sums of a block of rows to those of all, and begin again."""
    for j in range(part.size):
        whole[j] += part[j]
        part[j] = _ZERO


@kernel(
    "void(float32[:,::1], float32[::1], float32[::1], float32, float32[:,::1], float32[::1], float32[::1],"
    " float32[::1], int64, int64)"
)
def batch_norm(x, weight, bias, eps, out, means, variances, deviations, start, stop):
    """Result, mean, variance and reciprocal deviation of blocks of columns ``start`` to ``stop``."""
    count = x.shape[0]
    for block in range(start, stop):
        first, last = block * WIDE, min((block + 1) * WIDE, x.shape[1])
        width = last - first
        mean, variance, deviation = means[first:last], variances[first:last], deviations[first:last]
        w, b = weight[first:last], bias[first:last]
        part, whole = np.zeros(width, np.float32), np.zeros(width, np.float64)
        for r in range(count):
            row = x[r, first:last]
            for j in range(width):
                part[j] += row[j]
            if r % BLOCK == BLOCK - 1:
                empty(part, whole)
        empty(part, whole)
        for j in range(width):
            mean[j] = whole[j] / count
            whole[j] = 0
        for r in range(count):
            row = x[r, first:last]
            for j in range(width):
                d = row[j] - mean[j]
                part[j] += d * d
            if r % BLOCK == BLOCK - 1:
                empty(part, whole)
        empty(part, whole)
        for j in range(width):
            variance[j] = whole[j] / count
            deviation[j] = _ONE / np.sqrt(variance[j] + eps)
            part[j] = deviation[j] * w[j]
        for r in range(count):
            row, made = x[r, first:last], out[r, first:last]
            for j in range(width):
                made[j] = (row[j] - mean[j]) * part[j] + b[j]


@kernel(
    "void(float32[:,::1], float32[:,::1], float32[::1], float32[::1], float32[::1], float32[:,::1],"
    " float32[::1], float32[::1], int64, int64)"
)
def batch_norm_grad(g, x, weight, means, deviations, out, dweights, dbiases, start, stop):
    """The gradients for input, weight and bias of blocks of columns ``start`` to ``stop``."""
    count = x.shape[0]
    share = 1.0 / count
    for block in range(start, stop):
        first, last = block * WIDE, min((block + 1) * WIDE, x.shape[1])
        width = last - first
        mean, deviation, w = means[first:last], deviations[first:last], weight[first:last]
        dweight, dbias = dweights[first:last], dbiases[first:last]
        one, two = np.zeros(width, np.float32), np.zeros(width, np.float32)
        ones, twos = np.zeros(width, np.float64), np.zeros(width, np.float64)
        for r in range(count):
            row, given = x[r, first:last], g[r, first:last]
            for j in range(width):
                one[j] += given[j]
                two[j] += given[j] * (row[j] - mean[j])
            if r % BLOCK == BLOCK - 1:
                empty(one, ones)
                empty(two, twos)
        empty(one, ones)
        empty(two, twos)
        for j in range(width):
            dbias[j] = ones[j]
            dweight[j] = twos[j] * deviation[j]
            one[j] = ones[j] * share
            two[j] = twos[j] * share * deviation[j] * deviation[j]
        for r in range(count):
            row, given, made = x[r, first:last], g[r, first:last], out[r, first:last]
            for j in range(width):
                made[j] = (given[j] - one[j] - (row[j] - mean[j]) * two[j]) * (deviation[j] * w[j])


@kernel(
    "void(float32[:,:,::1], float32[:,:,::1], float32[::1], float32[:,:,::1], float32[::1], float32[::1],"
    " int64, int64)"
)
def scale_grad(g, x, scale, out, dscale, dshift, start, stop):
    """The gradients of ``x[:, c] * scale[c] + shift[c]`` for channels ``start`` to ``stop``."""
    for c in range(start, stop):
        a, product, total = scale[c], np.float64(0), np.float64(0)
        for r in range(x.shape[0]):
            row, given, made = x[r, c], g[r, c], out[r, c]
            p, s = _ZERO, _ZERO
            for i in range(row.size):
                v = given[i]
                made[i] = v * a
                p = plus(p, v * row[i])
                s = plus(s, v)
            product += p
            total += s
        dscale[c] = product
        dshift[c] = total
