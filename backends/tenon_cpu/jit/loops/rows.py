"""Softmax, its logarithm and layer norm over the rows of a float32 matrix, each row while it is in cache.

A kernel takes matrices and works on the rows ``start`` to ``stop``, so that threads can share them.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.vectors import exp, exp_below, order, plus, unorder

_ZERO, _ONE = np.float32(0), np.float32(1)
_SMALLEST = np.int32(-(2**31))
#: Rows whose contributions to a sum over rows are added before they join the rest: less rounding.
BLOCK = 64


@inlined
def peak(row):
    """The largest element. NaN may be passed over: it comes through the sums."""
    best = _SMALLEST
    for i in range(row.size):
        best = max(best, order(row[i]))
    return unorder(best)


@inlined
def total(row):
    """The sum."""
    s = _ZERO
    for i in range(row.size):
        s = plus(s, row[i])
    return s


@inlined
def total_power(row, top):
    """The sum of ``exp(row - top)``."""
    s = _ZERO
    for i in range(row.size):
        s = plus(s, exp_below(row[i] - top))
    return s


@inlined
def spread(row, mean):
    """The sum of the squares of ``row - mean``."""
    s = _ZERO
    for i in range(row.size):
        d = row[i] - mean
        s = plus(s, d * d)
    return s


@kernel("void(float32[:,::1], float32[:,::1], int64, int64)")
def softmax(x, out, start, stop):
    """Maximum, exponentials with their sum, quotient."""
    for r in range(start, stop):
        row, made = x[r], out[r]
        top = peak(row)
        s = _ZERO
        for i in range(row.size):
            e = exp_below(row[i] - top)
            made[i] = e
            s = plus(s, e)
        share = _ONE / s
        for i in range(row.size):
            made[i] *= share


@kernel("void(float32[:,::1], float32[:,::1], float32[:,::1], int64, int64)")
def softmax_grad(g, y, out, start, stop):
    """``y * (g - sum(g * y))``."""
    for r in range(start, stop):
        given, row, made = g[r], y[r], out[r]
        s = _ZERO
        for i in range(row.size):
            s = plus(s, given[i] * row[i])
        for i in range(row.size):
            made[i] = (given[i] - s) * row[i]


@kernel("void(float32[:,::1], float32[:,::1], int64, int64)")
def log_softmax(x, out, start, stop):
    """``x - top - log(sum(exp(x - top)))``."""
    for r in range(start, stop):
        row, made = x[r], out[r]
        top = peak(row)
        shift = np.log(total_power(row, top))
        for i in range(row.size):
            made[i] = (row[i] - top) - shift


@kernel("void(float32[:,::1], float32[:,::1], float32[:,::1], int64, int64)")
def log_softmax_grad(g, y, out, start, stop):
    """``g - exp(y) * sum(g)``."""
    for r in range(start, stop):
        given, row, made = g[r], y[r], out[r]
        s = total(given)
        for i in range(row.size):
            made[i] = given[i] - exp(row[i]) * s


@kernel(
    "void(float32[:,::1], float32[::1], float32[::1], float32, float32[:,::1], float32[::1], float32[::1],"
    " int64, int64)"
)
def layer_norm(x, weight, bias, eps, out, means, deviations, start, stop):
    """Result, mean and reciprocal deviation."""
    for r in range(start, stop):
        row, made = x[r], out[r]
        count = np.float32(row.size)
        mean = total(row) / count
        deviation = _ONE / np.sqrt(spread(row, mean) / count + eps)
        for i in range(row.size):
            made[i] = (row[i] - mean) * deviation * weight[i] + bias[i]
        means[r] = mean
        deviations[r] = deviation


@kernel(
    "void(float32[:,::1], float32[:,::1], float32[::1], float32[::1], float32[::1], float32[:,::1],"
    " float32[:,::1], int64, int64)"
)
def layer_norm_grad(g, x, weight, means, deviations, out, sums, start, stop):
    """The input's gradient in blocks of rows ``start`` to ``stop``; the weight's and the bias's over a block
    go to two rows of ``sums``."""
    count, width = x.shape
    share = _ONE / np.float32(width)
    for block in range(start, stop):
        dweight, dbias = sums[2 * block], sums[2 * block + 1]
        for i in range(width):
            dweight[i] = _ZERO
            dbias[i] = _ZERO
        for r in range(block * BLOCK, min((block + 1) * BLOCK, count)):
            given, row, made = g[r], x[r], out[r]
            mean, deviation = means[r], deviations[r]
            a = _ZERO
            b = _ZERO
            for i in range(width):
                normal = (row[i] - mean) * deviation
                inner = given[i] * weight[i]
                a = plus(a, inner)
                b = plus(b, inner * normal)
                dweight[i] += given[i] * normal
                dbias[i] += given[i]
            a *= share
            b *= share
            for i in range(width):
                normal = (row[i] - mean) * deviation
                made[i] = (given[i] * weight[i] - a - normal * b) * deviation


@kernel("void(float32[:,::1], float32, float32[:,::1], float32[::1], float32[::1], int64, int64)")
def standardise(x, eps, out, means, deviations, start, stop):
    """``layer_norm`` without weight and bias, whose rows would take the cache's place."""
    for r in range(start, stop):
        row, made = x[r], out[r]
        count = np.float32(row.size)
        mean = total(row) / count
        deviation = _ONE / np.sqrt(spread(row, mean) / count + eps)
        for i in range(row.size):
            made[i] = (row[i] - mean) * deviation
        means[r] = mean
        deviations[r] = deviation


@kernel("void(float32[:,::1], float32[:,::1], float32[::1], float32[::1], float32[:,::1], int64, int64)")
def standardise_grad(g, x, means, deviations, out, start, stop):
    """The input's gradient of ``standardise``."""
    share = _ONE / np.float32(x.shape[1])
    for r in range(start, stop):
        given, row, made = g[r], x[r], out[r]
        mean, deviation = means[r], deviations[r]
        a = _ZERO
        b = _ZERO
        for i in range(row.size):
            a = plus(a, given[i])
            b = plus(b, given[i] * (row[i] - mean))
        a *= share
        b *= share * deviation * deviation
        for i in range(row.size):
            made[i] = (given[i] - a - (row[i] - mean) * b) * deviation
