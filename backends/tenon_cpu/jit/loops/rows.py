"""Softmax, its logarithm and layer norm over the rows of a float32 matrix, each row while it is in cache.

A kernel computes the rows ``start`` to ``stop`` of its matrices, so that threads can share them.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.vectors import exp, exp_below, order, plus, unorder

_ZERO, _ONE = np.float32(0), np.float32(1)
_SMALLEST = np.int32(-(2**31))
#: Rows whose contributions to a sum over rows are added before they are added to the total: less rounding.
BLOCK = 64


@inlined
def maximum(row):
    """The maximum. It may ignore NaN, which propagates through the sums."""
    best = _SMALLEST
    for i in range(row.size):
        best = max(best, order(row[i]))
    return unorder(best)


@inlined
def total(row):
    """The sum of a row."""
    s = _ZERO
    for i in range(row.size):
        s = plus(s, row[i])
    return s


@inlined
def exp_sum(row, top):
    """The sum of ``exp(row - top)``."""
    s = _ZERO
    for i in range(row.size):
        s = plus(s, exp_below(row[i] - top))
    return s


@inlined
def squared_deviations(row, mean):
    """The sum of the squares of ``row - mean``."""
    s = _ZERO
    for i in range(row.size):
        d = row[i] - mean
        s = plus(s, d * d)
    return s


@kernel("void(float32[:,::1], float32[:,::1], int64, int64)")
def softmax(x, out, start, stop):
    """Softmax: the maximum, exponentials with their sum, and the quotients."""
    for r in range(start, stop):
        row, out_row = x[r], out[r]
        top = maximum(row)
        s = _ZERO
        for i in range(row.size):
            e = exp_below(row[i] - top)
            out_row[i] = e
            s = plus(s, e)
        share = _ONE / s
        for i in range(row.size):
            out_row[i] *= share


@kernel("void(float32[:,::1], float32[:,::1], float32[:,::1], int64, int64)")
def softmax_grad(g, y, out, start, stop):
    """``y * (g - sum(g * y))``."""
    for r in range(start, stop):
        g_row, row, out_row = g[r], y[r], out[r]
        s = _ZERO
        for i in range(row.size):
            s = plus(s, g_row[i] * row[i])
        for i in range(row.size):
            out_row[i] = (g_row[i] - s) * row[i]


@kernel("void(float32[:,::1], float32[:,::1], int64, int64)")
def log_softmax(x, out, start, stop):
    """``x - top - log(sum(exp(x - top)))``."""
    for r in range(start, stop):
        row, out_row = x[r], out[r]
        top = maximum(row)
        shift = np.log(exp_sum(row, top))
        for i in range(row.size):
            out_row[i] = (row[i] - top) - shift


@kernel("void(float32[:,::1], float32[:,::1], float32[:,::1], int64, int64)")
def log_softmax_grad(g, y, out, start, stop):
    """``g - exp(y) * sum(g)``."""
    for r in range(start, stop):
        g_row, row, out_row = g[r], y[r], out[r]
        s = total(g_row)
        for i in range(row.size):
            out_row[i] = g_row[i] - exp(row[i]) * s


@kernel(
    "void(float32[:,::1], float32[::1], float32[::1], float32, float32[:,::1], float32[::1], float32[::1],"
    " int64, int64)"
)
def layer_norm(x, weight, bias, eps, out, means, deviations, start, stop):
    """Result, mean and reciprocal deviation."""
    for r in range(start, stop):
        row, out_row = x[r], out[r]
        count = np.float32(row.size)
        mean = total(row) / count
        deviation = _ONE / np.sqrt(squared_deviations(row, mean) / count + eps)
        for i in range(row.size):
            out_row[i] = (row[i] - mean) * deviation * weight[i] + bias[i]
        means[r] = mean
        deviations[r] = deviation


@kernel(
    "void(float32[:,::1], float32[:,::1], float32[::1], float32[::1], float32[::1], float32[:,::1],"
    " float32[:,::1], int64, int64)"
)
def layer_norm_grad(g, x, weight, means, deviations, out, sums, start, stop):
    """The gradient for the input in blocks of rows ``start`` to ``stop``; those for weight and bias over a
    block are written to two rows of ``sums``."""
    count, width = x.shape
    share = _ONE / np.float32(width)
    for block in range(start, stop):
        dweight, dbias = sums[2 * block], sums[2 * block + 1]
        for i in range(width):
            dweight[i] = _ZERO
            dbias[i] = _ZERO
        for r in range(block * BLOCK, min((block + 1) * BLOCK, count)):
            g_row, row, out_row = g[r], x[r], out[r]
            mean, deviation = means[r], deviations[r]
            a = _ZERO
            b = _ZERO
            for i in range(width):
                normal = (row[i] - mean) * deviation
                inner = g_row[i] * weight[i]
                a = plus(a, inner)
                b = plus(b, inner * normal)
                dweight[i] += g_row[i] * normal
                dbias[i] += g_row[i]
            a *= share
            b *= share
            for i in range(width):
                normal = (row[i] - mean) * deviation
                out_row[i] = (g_row[i] * weight[i] - a - normal * b) * deviation


@kernel("void(float32[:,::1], float32, float32[:,::1], float32[::1], float32[::1], int64, int64)")
def standardise(x, eps, out, means, deviations, start, stop):
    """``layer_norm`` without weight and bias, whose rows would occupy the cache."""
    for r in range(start, stop):
        row, out_row = x[r], out[r]
        count = np.float32(row.size)
        mean = total(row) / count
        deviation = _ONE / np.sqrt(squared_deviations(row, mean) / count + eps)
        for i in range(row.size):
            out_row[i] = (row[i] - mean) * deviation
        means[r] = mean
        deviations[r] = deviation


@kernel("void(float32[:,::1], float32[:,::1], float32[::1], float32[::1], float32[:,::1], int64, int64)")
def standardise_grad(g, x, means, deviations, out, start, stop):
    """The gradient of ``standardise`` for the input."""
    share = _ONE / np.float32(x.shape[1])
    for r in range(start, stop):
        g_row, row, out_row = g[r], x[r], out[r]
        mean, deviation = means[r], deviations[r]
        a = _ZERO
        b = _ZERO
        for i in range(row.size):
            a = plus(a, g_row[i])
            b = plus(b, g_row[i] * (row[i] - mean))
        a *= share
        b *= share * deviation * deviation
        for i in range(row.size):
            out_row[i] = (g_row[i] - a - (row[i] - mean) * b) * deviation
