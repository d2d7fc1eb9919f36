"""Softmax, layer norm and cross entropy over contiguous rows, a few rows at a time.

The rows are the last axis, or the last axes, of a contiguous array: see ``table/rows.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.extend import OpNamespace
from tenon.ops import cross_entropy as _cross_entropy
from tenon.ops.composite.classification import present_targets, reduced_losses, target_slopes, target_weights
from tenon_cpu.kernels.blocks import over_rows, rows_of
from tenon_cpu.threads import scratch

_sum: Callable[..., np.ndarray] = np.add.reduce
_max: Callable[..., np.ndarray] = np.maximum.reduce


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax of each row: maximum, exponential, sum and quotient."""
    out = np.empty_like(x)
    rows, out_rows = rows_of(x), rows_of(out)

    def work(a: int, b: int) -> None:
        part = out_rows[a:b]
        np.subtract(rows[a:b], _max(rows[a:b], 1, None, None, True), out=part)
        np.exp(part, out=part)
        total = _sum(part, 1, None, None, True)
        np.multiply(part, np.reciprocal(total, out=total), out=part)

    over_rows(work, rows.shape[0], rows.shape[1], x.itemsize, cost=6)
    return out


def safe_softmax(f: OpNamespace, x: np.ndarray, *, axis: int) -> np.ndarray:
    """Softmax that returns zeros for rows of minus infinity, whose softmax is NaN: only the first element of
    each row is checked for NaN."""
    out = f.softmax(x, axis=axis)
    lead = (slice(None),) * axis
    suspect = np.isnan(out[(*lead, slice(0, 1))])
    if suspect.any():
        dead = suspect & (_max(x, axis, None, None, True) == -np.inf)
        np.copyto(out, 0, where=dead)
    return out


def softmax_grad(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return ``out * (g - sum(g * out))`` of each row."""
    dx = np.empty_like(g)
    g_rows, rows, dx_rows = rows_of(g), rows_of(out), rows_of(dx)

    def work(a: int, b: int) -> None:
        part, y = dx_rows[a:b], rows[a:b]
        np.multiply(g_rows[a:b], y, out=part)
        total = _sum(part, 1, None, None, True)
        np.subtract(g_rows[a:b], total, out=part)
        np.multiply(part, y, out=part)

    over_rows(work, rows.shape[0], rows.shape[1], g.itemsize, cost=3)
    return dx


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Log-softmax of each row: maximum, exponential, sum and logarithm."""
    out = np.empty_like(x)
    rows, out_rows = rows_of(x), rows_of(out)

    def work(a: int, b: int) -> None:
        part = out_rows[a:b]
        np.subtract(rows[a:b], _max(rows[a:b], 1, None, None, True), out=part)
        powers = np.exp(part, out=scratch.get("powers", part.shape, x.dtype))
        np.subtract(part, np.log(_sum(powers, 1, None, None, True)), out=part)

    over_rows(work, rows.shape[0], rows.shape[1], x.itemsize, cost=6)
    return out


def log_softmax_grad(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return ``g - exp(out) * sum(g)`` of each row."""
    dx = np.empty_like(g)
    g_rows, rows, dx_rows = rows_of(g), rows_of(out), rows_of(dx)

    def work(a: int, b: int) -> None:
        part = np.exp(rows[a:b], out=dx_rows[a:b])
        np.multiply(part, _sum(g_rows[a:b], 1, None, None, True), out=part)
        np.subtract(g_rows[a:b], part, out=part)

    over_rows(work, rows.shape[0], rows.shape[1], g.itemsize, cost=6)
    return dx


def cross_entropy(
    x: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> tuple[np.ndarray, ...]:
    """Return the loss and each row's log-sum-exp, without storing the log-probabilities of all classes."""
    _cross_entropy.infer(x, target, weight, reduction=reduction, ignore_index=ignore_index)
    total = np.empty((x.shape[0], 1), x.dtype)

    def work(a: int, b: int) -> None:
        peak = _max(x[a:b], 1, None, None, True)
        peak[~np.isfinite(peak)] = 0
        part = np.subtract(x[a:b], peak, out=scratch.get("powers", (b - a, x.shape[1]), x.dtype))
        np.exp(part, out=part)
        np.add(np.log(_sum(part, 1, None, None, True)), peak, out=total[a:b])

    over_rows(work, x.shape[0], x.shape[1], x.itemsize, cost=6)
    present, safe = present_targets(np, target, x.shape[1], ignore_index)
    log_probabilities = np.take_along_axis(x, safe[:, None], 1)[:, 0] - total[:, 0]
    weights = target_weights(np, present, safe, weight, x.dtype)
    return reduced_losses(np, log_probabilities, present, weights, reduction), total


def cross_entropy_grad(
    g: np.ndarray,
    x: np.ndarray,
    total: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> np.ndarray:
    """Return each row's probabilities times its weight in the loss, minus that weight at the target."""
    present, safe = present_targets(np, target, x.shape[1], ignore_index)
    slopes = target_slopes(np, g, target_weights(np, present, safe, weight, x.dtype), reduction)
    shares, dx = -slopes[:, None], np.empty_like(x)

    def work(a: int, b: int) -> None:
        part = np.subtract(x[a:b], total[a:b], out=dx[a:b])
        np.exp(part, out=part)
        np.multiply(part, shares[a:b], out=part)
        part[np.arange(b - a), safe[a:b]] += slopes[a:b]

    over_rows(work, x.shape[0], x.shape[1], x.itemsize, cost=6)
    return dx


def layer_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, *, rank: int, eps: float = 1e-5
) -> tuple[np.ndarray, ...]:
    """Return result, mean and reciprocal standard deviation, row by row."""
    out, rows = np.empty_like(x), rows_of(x, rank)
    out_rows, share = rows_of(out, rank), x.dtype.type(1.0 / rows.shape[1])
    scale, shift = (None if v is None else v.reshape(1, -1) for v in (weight, bias))
    means, deviations = np.empty((rows.shape[0], 1), x.dtype), np.empty((rows.shape[0], 1), x.dtype)

    def work(a: int, b: int) -> None:
        part, deviation = out_rows[a:b], deviations[a:b]
        mean = np.multiply(_sum(rows[a:b], 1, None, None, True), share, out=means[a:b])
        np.subtract(rows[a:b], mean, out=part)
        squares = np.multiply(part, part, out=scratch.get("squares", part.shape, x.dtype))
        np.multiply(_sum(squares, 1, None, None, True), share, out=deviation)
        np.add(deviation, x.dtype.type(eps), out=deviation)
        np.sqrt(deviation, out=deviation)
        np.reciprocal(deviation, out=deviation)
        np.multiply(part, deviation, out=part)
        if scale is not None:
            np.multiply(part, scale, out=part)
        if shift is not None:
            np.add(part, shift, out=part)

    over_rows(work, rows.shape[0], rows.shape[1], x.itemsize, cost=4)
    statistics_shape = (*x.shape[: x.ndim - rank], *(1,) * rank)
    return out, means.reshape(statistics_shape), deviations.reshape(statistics_shape)


def layer_norm_grad(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray, mean: np.ndarray, deviation: np.ndarray, *, rank: int
) -> tuple[np.ndarray, ...]:
    """Return the gradients of input, weight and bias in one pass over the rows, in blocks; the blocks'
    partial sums of the parameters' gradients are added in order of rows."""
    dx = np.empty_like(x)
    rows, g_rows, dx_rows = rows_of(x, rank), rows_of(g, rank), rows_of(dx, rank)
    means, deviations = mean.reshape(-1, 1), deviation.reshape(-1, 1)
    scale, share = weight.reshape(1, -1), x.dtype.type(1.0 / rows.shape[1])
    sums: list[tuple[int, np.ndarray, np.ndarray]] = []

    def work(a: int, b: int) -> None:
        shape = (b - a, rows.shape[1])
        normalized = scratch.get("normal", shape, x.dtype)
        other = scratch.get("other", shape, x.dtype)
        dx_block, g_block = dx_rows[a:b], g_rows[a:b]
        np.subtract(rows[a:b], means[a:b], out=normalized)
        np.multiply(normalized, deviations[a:b], out=normalized)
        np.multiply(g_block, normalized, out=other)
        sums.append((a, _sum(other, 0), _sum(g_block, 0)))
        np.multiply(g_block, scale, out=dx_block)
        mean_of_scaled = _sum(dx_block, 1, None, None, True)
        np.multiply(mean_of_scaled, share, out=mean_of_scaled)
        np.multiply(dx_block, normalized, out=other)
        mean_of_product = _sum(other, 1, None, None, True)
        np.multiply(mean_of_product, share, out=mean_of_product)
        np.multiply(normalized, mean_of_product, out=normalized)
        np.subtract(dx_block, normalized, out=dx_block)
        np.subtract(dx_block, mean_of_scaled, out=dx_block)
        np.multiply(dx_block, deviations[a:b], out=dx_block)

    over_rows(work, rows.shape[0], rows.shape[1], x.itemsize, cost=8)
    ordered = sorted(sums, key=lambda entry: entry[0])
    dweight = _sum(np.stack([entry[1] for entry in ordered]), 0).reshape(weight.shape)
    dbias = _sum(np.stack([entry[2] for entry in ordered]), 0).reshape(weight.shape)
    return dx, dweight, dbias


__all__ = [
    "cross_entropy",
    "cross_entropy_grad",
    "layer_norm",
    "layer_norm_grad",
    "log_softmax",
    "log_softmax_grad",
    "safe_softmax",
    "softmax",
    "softmax_grad",
]
