"""Batch norm of the columns of a float32 matrix, and gradients of scale and shift of images' channels.

A block of ``WIDE`` columns is read row by row; sums are of float32 over ``BLOCK`` rows, of float64 over all.
Threads share the blocks, or the channels.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.rows import BLOCK
from tenon_cpu.jit.loops.vectors import plus

_ZERO, _ONE = np.float32(0), np.float32(1)
#: Columns of a block: 64 rows of them are 64 KB.
WIDE = 256


@inlined
def add_and_reset(part, totals):
    """Add the sums ``part`` of a block of rows to ``totals``, and reset them to 0."""
    for j in range(part.size):
        totals[j] += part[j]
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
        part, totals = np.zeros(width, np.float32), np.zeros(width, np.float64)
        for r in range(count):
            row = x[r, first:last]
            for j in range(width):
                part[j] += row[j]
            if r % BLOCK == BLOCK - 1:
                add_and_reset(part, totals)
        add_and_reset(part, totals)
        for j in range(width):
            mean[j] = totals[j] / count
            totals[j] = 0
        for r in range(count):
            row = x[r, first:last]
            for j in range(width):
                d = row[j] - mean[j]
                part[j] += d * d
            if r % BLOCK == BLOCK - 1:
                add_and_reset(part, totals)
        add_and_reset(part, totals)
        for j in range(width):
            variance[j] = totals[j] / count
            deviation[j] = _ONE / np.sqrt(variance[j] + eps)
            part[j] = deviation[j] * w[j]
        for r in range(count):
            row, out_row = x[r, first:last], out[r, first:last]
            for j in range(width):
                out_row[j] = (row[j] - mean[j]) * part[j] + b[j]


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
        g_sum, product_sum = np.zeros(width, np.float32), np.zeros(width, np.float32)
        g_totals, product_totals = np.zeros(width, np.float64), np.zeros(width, np.float64)
        for r in range(count):
            row, g_row = x[r, first:last], g[r, first:last]
            for j in range(width):
                g_sum[j] += g_row[j]
                product_sum[j] += g_row[j] * (row[j] - mean[j])
            if r % BLOCK == BLOCK - 1:
                add_and_reset(g_sum, g_totals)
                add_and_reset(product_sum, product_totals)
        add_and_reset(g_sum, g_totals)
        add_and_reset(product_sum, product_totals)
        for j in range(width):
            dbias[j] = g_totals[j]
            dweight[j] = product_totals[j] * deviation[j]
            g_sum[j] = g_totals[j] * share
            product_sum[j] = product_totals[j] * share * deviation[j] * deviation[j]
        for r in range(count):
            row, g_row, out_row = x[r, first:last], g[r, first:last], out[r, first:last]
            for j in range(width):
                inner = g_row[j] - g_sum[j] - (row[j] - mean[j]) * product_sum[j]
                out_row[j] = inner * (deviation[j] * w[j])


@kernel(
    "void(float32[:,:,::1], float32[:,:,::1], float32[::1], float32[:,:,::1], float32[::1], float32[::1],"
    " int64, int64)"
)
def scale_grad(g, x, scale, out, dscale, dshift, start, stop):
    """The gradients of ``x[:, c] * scale[c] + shift[c]`` for channels ``start`` to ``stop``."""
    for c in range(start, stop):
        a, product, total = scale[c], np.float64(0), np.float64(0)
        for r in range(x.shape[0]):
            row, g_row, out_row = x[r, c], g[r, c], out[r, c]
            p, s = _ZERO, _ZERO
            for i in range(row.size):
                v = g_row[i]
                out_row[i] = v * a
                p = plus(p, v * row[i])
                s = plus(s, v)
            product += p
            total += s
        dscale[c] = product
        dshift[c] = total
