"""Softmax, layer norm and cross entropy over contiguous rows, a few rows at a time.

Each takes the reference's place where the rows are the last axis of a contiguous array; anything else goes
through the parts (``f``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import cross_entropy as _cross_entropy
from tenon.ops import cross_entropy_grad as _cross_entropy_grad
from tenon.ops import layer_norm as _layer_norm
from tenon.ops import layer_norm_grad as _layer_norm_grad
from tenon.ops import log_softmax as _log_softmax
from tenon.ops import log_softmax_grad as _log_softmax_grad
from tenon.ops import safe_softmax as _safe_softmax
from tenon.ops import softmax as _softmax
from tenon.ops import softmax_grad as _softmax_grad
from tenon.ops.composite.classification import present_targets, reduced_losses, target_slopes, target_weights
from tenon_cpu.kernels.blocks import over_rows, plain, rows_of
from tenon_cpu.threads import scratch

_SMALL = 256
_sum: Any = np.add.reduce
_max: Any = np.maximum.reduce


def _last(x: Any, axis: int) -> bool:
    return bool(x.ndim > 0 and axis == x.ndim - 1 and x.size >= _SMALL)


def softmax(f: Any, x: Any, *, axis: int) -> Any:
    """Maximum, exponential, sum and quotient of each row."""
    if not _last(x, axis) or not plain(x):
        return _softmax.decompose(f, x if x.flags.c_contiguous else x.copy(), axis=axis)
    out = np.empty_like(x)
    rows, made = rows_of(x), rows_of(out)

    def work(a: int, b: int) -> None:
        part = made[a:b]
        np.subtract(rows[a:b], _max(rows[a:b], 1, None, None, True), out=part)
        np.exp(part, out=part)
        total = _sum(part, 1, None, None, True)
        np.multiply(part, np.reciprocal(total, out=total), out=part)

    over_rows(work, rows.shape[0], rows.shape[1], x.itemsize, cost=6)
    return out


def safe_softmax(f: Any, x: Any, *, axis: int) -> Any:
    """``softmax``; nothing but minus infinity makes a row of NaN, which its first element tells."""
    if x.ndim == 0 or x.size == 0:
        return _safe_softmax.decompose(f, x, axis=axis)
    out = f.softmax(x, axis=axis)
    lead = (slice(None),) * axis
    suspect = np.isnan(out[(*lead, slice(0, 1))])
    if suspect.any():
        dead = suspect & (_max(x, axis, None, None, True) == -np.inf)
        np.copyto(out, 0, where=dead)
    return out


def softmax_grad(f: Any, g: Any, out: Any, *, axis: int) -> Any:
    """``out * (g - sum(g * out))`` of each row."""
    if not _last(out, axis) or not plain(g, out):
        return _softmax_grad.decompose(f, g, out, axis=axis)
    made = np.empty_like(g)
    given, rows, result = rows_of(g), rows_of(out), rows_of(made)

    def work(a: int, b: int) -> None:
        part, y = result[a:b], rows[a:b]
        np.multiply(given[a:b], y, out=part)
        total = _sum(part, 1, None, None, True)
        np.subtract(given[a:b], total, out=part)
        np.multiply(part, y, out=part)

    over_rows(work, rows.shape[0], rows.shape[1], g.itemsize, cost=3)
    return made


def log_softmax(f: Any, x: Any, *, axis: int) -> Any:
    """Maximum, exponential, sum and logarithm of each row."""
    if not _last(x, axis) or not plain(x):
        return _log_softmax.decompose(f, x if x.flags.c_contiguous else x.copy(), axis=axis)
    out = np.empty_like(x)
    rows, made = rows_of(x), rows_of(out)

    def work(a: int, b: int) -> None:
        part = made[a:b]
        np.subtract(rows[a:b], _max(rows[a:b], 1, None, None, True), out=part)
        powers = np.exp(part, out=scratch.get("powers", part.shape, x.dtype))
        np.subtract(part, np.log(_sum(powers, 1, None, None, True)), out=part)

    over_rows(work, rows.shape[0], rows.shape[1], x.itemsize, cost=6)
    return out


def log_softmax_grad(f: Any, g: Any, out: Any, *, axis: int) -> Any:
    """``g - exp(out) * sum(g)`` of each row."""
    if not _last(out, axis) or not plain(g, out):
        return _log_softmax_grad.decompose(f, g, out, axis=axis)
    made = np.empty_like(g)
    given, rows, result = rows_of(g), rows_of(out), rows_of(made)

    def work(a: int, b: int) -> None:
        part = np.exp(rows[a:b], out=result[a:b])
        np.multiply(part, _sum(given[a:b], 1, None, None, True), out=part)
        np.subtract(given[a:b], part, out=part)

    over_rows(work, rows.shape[0], rows.shape[1], g.itemsize, cost=6)
    return made


def cross_entropy(
    f: Any, x: Any, target: Any, weight: Any, *, reduction: str = "mean", ignore_index: int = -100
) -> Any:
    """The loss from each row's log-sum-exp; the log-probabilities are never written out."""
    if x.ndim != 2 or x.size < _SMALL or not plain(x):
        return _cross_entropy.raw_forward(
            f, x, target, weight, reduction=reduction, ignore_index=ignore_index
        )
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
    picked = np.take_along_axis(x, safe[:, None], 1)[:, 0] - total[:, 0]
    weights = target_weights(np, present, safe, weight, x.dtype)
    return reduced_losses(np, picked, present, weights, reduction), total


def cross_entropy_grad(
    f: Any,
    g: Any,
    x: Any,
    total: Any,
    target: Any,
    weight: Any,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Any:
    """Each row's probabilities times its share of the loss, less that share at the target."""
    if x.ndim != 2 or x.size < _SMALL or not plain(x):
        return _cross_entropy_grad.decompose(
            f, g, x, total, target, weight, reduction=reduction, ignore_index=ignore_index
        )
    present, safe = present_targets(np, target, x.shape[1], ignore_index)
    slopes = target_slopes(np, g, target_weights(np, present, safe, weight, x.dtype), reduction)
    shares, made = -slopes[:, None], np.empty_like(x)

    def work(a: int, b: int) -> None:
        part = np.subtract(x[a:b], total[a:b], out=made[a:b])
        np.exp(part, out=part)
        np.multiply(part, shares[a:b], out=part)
        part[np.arange(b - a), safe[a:b]] += slopes[a:b]

    over_rows(work, x.shape[0], x.shape[1], x.itemsize, cost=6)
    return made


def layer_norm(f: Any, x: Any, weight: Any, bias: Any, *, rank: int, eps: float = 1e-5) -> Any:
    """Result, mean and reciprocal deviation, row by row."""
    if x.size < _SMALL or not plain(*(v for v in (x, weight, bias) if v is not None)):
        return _layer_norm.raw_forward(
            f, x if x.flags.c_contiguous else x.copy(), weight, bias, rank=rank, eps=eps
        )
    out, rows = np.empty_like(x), rows_of(x, rank)
    made, share = rows_of(out, rank), x.dtype.type(1.0 / rows.shape[1])
    scale, shift = (None if v is None else v.reshape(1, -1) for v in (weight, bias))
    means, deviations = np.empty((rows.shape[0], 1), x.dtype), np.empty((rows.shape[0], 1), x.dtype)

    def work(a: int, b: int) -> None:
        part, deviation = made[a:b], deviations[a:b]
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
    kept = (*x.shape[: x.ndim - rank], *(1,) * rank)
    return out, means.reshape(kept), deviations.reshape(kept)


def layer_norm_grad(
    f: Any, g: Any, x: Any, weight: Any, mean: Any, deviation: Any, *, rank: int, needs: Any
) -> Any:
    """All three gradients in one walk over the rows; per-element sums are gathered block by block."""
    if x.size < _SMALL or not all(needs[1:]) or weight is None or not plain(g, x, weight, mean, deviation):
        return _layer_norm_grad.decompose(f, g, x, weight, mean, deviation, rank=rank, needs=needs)
    dx = np.empty_like(x)
    rows, given, made = rows_of(x, rank), rows_of(g, rank), rows_of(dx, rank)
    means, deviations = mean.reshape(-1, 1), deviation.reshape(-1, 1)
    scale, share = weight.reshape(1, -1), x.dtype.type(1.0 / rows.shape[1])
    sums: list[Any] = []

    def work(a: int, b: int) -> None:
        shape = (b - a, rows.shape[1])
        normal = scratch.get("normal", shape, x.dtype)
        other = scratch.get("other", shape, x.dtype)
        inner, grad = made[a:b], given[a:b]
        np.subtract(rows[a:b], means[a:b], out=normal)
        np.multiply(normal, deviations[a:b], out=normal)
        np.multiply(grad, normal, out=other)
        sums.append((a, _sum(other, 0), _sum(grad, 0)))
        np.multiply(grad, scale, out=inner)
        first = _sum(inner, 1, None, None, True)
        np.multiply(first, share, out=first)
        np.multiply(inner, normal, out=other)
        second = _sum(other, 1, None, None, True)
        np.multiply(second, share, out=second)
        np.multiply(normal, second, out=normal)
        np.subtract(inner, normal, out=inner)
        np.subtract(inner, first, out=inner)
        np.multiply(inner, deviations[a:b], out=inner)

    over_rows(work, rows.shape[0], rows.shape[1], x.itemsize, cost=8)
    ordered = sorted(sums, key=lambda entry: entry[0])
    dweight = _sum(np.stack([entry[1] for entry in ordered]), 0).reshape(weight.shape)
    dbias = _sum(np.stack([entry[2] for entry in ordered]), 0).reshape(weight.shape)
    return dx, dweight, dbias


COMPOSITES: dict[str, Kernel] = {
    "softmax": softmax,
    "safe_softmax": safe_softmax,
    "softmax_grad": softmax_grad,
    "log_softmax": log_softmax,
    "log_softmax_grad": log_softmax_grad,
    "cross_entropy": cross_entropy,
    "cross_entropy_grad": cross_entropy_grad,
    "layer_norm": layer_norm,
    "layer_norm_grad": layer_norm_grad,
}

__all__ = ["COMPOSITES"]
