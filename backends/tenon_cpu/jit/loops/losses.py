"""Cross entropy of class indices, and its gradient, each in one pass over the scores."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.rows import exp_sum, maximum
from tenon_cpu.jit.loops.vectors import exp_below

_ZERO, _ONE = np.float32(0), np.float32(1)
_INFINITY = np.float32(np.inf)


@inlined
def log_sum_exp(row):
    """The logarithm of the sum of exponentials; if the maximum is infinite, that maximum, or NaN."""
    top = maximum(row)
    if abs(top) == _INFINITY:
        for i in range(row.size):
            if row[i] != row[i]:
                top = row[i]
        return top
    return np.log(exp_sum(row, top)) + top


@kernel(
    "void(float32[:,::1], int64[::1], float32[::1], int64, float32[:,::1], float32[::1], float32[::1],"
    " int64[::1], int64, int64)"
)
def cross_entropy(x, target, weight, ignored, totals, losses, weights, outside, start, stop):
    """Each row's log-sum-exp, loss and weight; ``outside[0]`` becomes 1 if a target is no class."""
    classes = x.shape[1]
    for r in range(start, stop):
        row, chosen = x[r], target[r]
        total = log_sum_exp(row)
        totals[r, 0] = total
        losses[r] = _ZERO
        weights[r] = _ZERO
        if chosen != ignored:
            if chosen < 0 or chosen >= classes:
                outside[0] = 1
            else:
                weights[r] = weight[chosen] if weight.size else _ONE
                losses[r] = weights[r] * (total - row[chosen])


@kernel("void(float32[:,::1], float32[:,::1], int64[::1], float32[::1], int64, float32[:,::1], int64, int64)")
def cross_entropy_grad(x, totals, target, slopes, ignored, out, start, stop):
    """``(1 at the target - exp(x - total)) * slope``."""
    for r in range(start, stop):
        row, out_row = x[r], out[r]
        total, slope = totals[r, 0], slopes[r]
        for i in range(row.size):
            out_row[i] = exp_below(row[i] - total) * -slope
        chosen = target[r]
        if chosen != ignored and 0 <= chosen < row.size:
            out_row[chosen] += slope


@kernel(
    "void(float32[:,:,::1], float32[:,::1], int64[:,::1], float32[::1], int64, float32[:,::1],"
    " float32[:,::1], int64[::1], int64, int64)"
)
def nll_images(x, totals, target, weight, ignored, losses, weights, outside, start, stop):
    """``weight * (total - x)`` at the targets of images ``[N, C, P]``, and the weights; 0 is the missing
    total."""
    classes, has_totals = x.shape[1], totals.shape[0] > 0
    for r in range(start, stop):
        for p in range(x.shape[2]):
            chosen = target[r, p]
            losses[r, p] = _ZERO
            weights[r, p] = _ZERO
            if chosen != ignored:
                if chosen < 0 or chosen >= classes:
                    outside[0] = 1
                else:
                    w = weight[chosen] if weight.size else _ONE
                    weights[r, p] = w
                    losses[r, p] = w * ((totals[r, p] if has_totals else _ZERO) - x[r, chosen, p])


@kernel("void(float32[:,:,::1], float32[:,::1], float32[:,::1], int64, int64)")
def max_and_exp_sums(x, peaks, sums, start, stop):
    """For each place of images ``[N, C, P]`` the maximum score (``peak``) and the sum of ``exp(x - peak)``
    over classes; 1 with a peak that is infinite or NaN, which is the log-sum-exp itself."""
    for r in range(start, stop):
        peak, s = peaks[r], sums[r]
        for p in range(peak.size):
            peak[p] = -_INFINITY
            s[p] = _ZERO
        for c in range(x.shape[1]):
            row = x[r, c]
            for p in range(peak.size):
                peak[p] = row[p] if row[p] > peak[p] or row[p] != row[p] else peak[p]
        for c in range(x.shape[1]):
            row = x[r, c]
            for p in range(peak.size):
                s[p] += exp_below(row[p] - peak[p])
        for p in range(peak.size):
            s[p] = s[p] if abs(peak[p]) < _INFINITY else _ONE


@kernel(
    "void(float32[:,:,::1], float32[:,::1], int64[:,::1], float32[:,::1], int64, float32[:,:,::1], int64,"
    " int64)"
)
def images_grad(x, totals, target, slopes, ignored, out, start, stop):
    """``(1 at the target - exp(x - total)) * slope`` of images ``[N, C, P]``."""
    for r in range(start, stop):
        total, slope = totals[r], slopes[r]
        for c in range(x.shape[1]):
            row, out_row = x[r, c], out[r, c]
            for p in range(row.size):
                out_row[p] = exp_below(row[p] - total[p]) * -slope[p]
        for p in range(x.shape[2]):
            chosen = target[r, p]
            if chosen != ignored and 0 <= chosen < x.shape[1]:
                out[r, chosen, p] += slope[p]
