"""Softmax, norms and losses of large float32 arrays, by compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import cross_entropy as _cross_entropy
from tenon.ops.composite.classification import present_targets
from tenon_cpu.jit import losses, rows
from tenon_cpu.jit.calls import FLOAT, WORTH, fits, indices_fit, plain, share
from tenon_cpu.kernels import rowwise
from tenon_cpu.kernels.blocks import rows_of

#: The least size for cross entropy, which is some fifteen calls of NumPy whatever the size.
_WORTH_LOSS = 1 << 10
_NO_WEIGHT = np.empty(0, np.float32)


def _last(x: Any, axis: int) -> bool:
    return bool(x.size >= WORTH and axis == x.ndim - 1)


def softmax(f: Any, x: Any, *, axis: int) -> Any:
    """Along the last axis."""
    if not _last(x, axis) or not fits(x):
        return rowwise.softmax(f, x, axis=axis)
    x = plain(x)
    out, run = np.empty_like(x), rows.softmax.ready()
    given, made = rows_of(x), rows_of(out)
    share(lambda a, b: run(given, made, a, b), given.shape[0], 5 * x.size)
    return out


def softmax_grad(f: Any, g: Any, out: Any, *, axis: int) -> Any:
    """Along the last axis."""
    if not _last(out, axis) or not fits(g, out) or g.shape != out.shape:
        return rowwise.softmax_grad(f, g, out, axis=axis)
    g, out = plain(g), plain(out)
    made, run = np.empty_like(g), rows.softmax_grad.ready()
    given, known, result = rows_of(g), rows_of(out), rows_of(made)
    share(lambda a, b: run(given, known, result, a, b), given.shape[0], 2 * g.size)
    return made


def log_softmax(f: Any, x: Any, *, axis: int) -> Any:
    """Along the last axis."""
    if not _last(x, axis) or not fits(x):
        return rowwise.log_softmax(f, x, axis=axis)
    x = plain(x)
    out, run = np.empty_like(x), rows.log_softmax.ready()
    given, made = rows_of(x), rows_of(out)
    share(lambda a, b: run(given, made, a, b), given.shape[0], 5 * x.size)
    return out


def log_softmax_grad(f: Any, g: Any, out: Any, *, axis: int) -> Any:
    """Along the last axis."""
    if not _last(out, axis) or not fits(g, out) or g.shape != out.shape:
        return rowwise.log_softmax_grad(f, g, out, axis=axis)
    g, out = plain(g), plain(out)
    made, run = np.empty_like(g), rows.log_softmax_grad.ready()
    given, known, result = rows_of(g), rows_of(out), rows_of(made)
    share(lambda a, b: run(given, known, result, a, b), given.shape[0], 5 * g.size)
    return made


def layer_norm(f: Any, x: Any, weight: Any, bias: Any, *, rank: int, eps: float = 1e-5) -> Any:
    """Result, mean and reciprocal deviation; a missing weight is ones, a missing bias zeros."""
    affine = [v for v in (weight, bias) if v is not None]
    if x.size < WORTH or not fits(x, *affine) or any(v.shape != x.shape[x.ndim - rank :] for v in affine):
        return rowwise.layer_norm(f, x, weight, bias, rank=rank, eps=eps)
    x = plain(x)
    matrix, run = rows_of(x, rank), rows.layer_norm.ready()
    count, width = matrix.shape
    scale = np.ones(width, FLOAT) if weight is None else plain(weight).reshape(-1)
    shift = np.zeros(width, FLOAT) if bias is None else plain(bias).reshape(-1)
    out = np.empty_like(x)
    made, means, deviations = rows_of(out, rank), np.empty(count, FLOAT), np.empty(count, FLOAT)
    small = np.float32(eps)
    share(lambda a, b: run(matrix, scale, shift, small, made, means, deviations, a, b), count, 3 * x.size)
    kept = (*x.shape[: x.ndim - rank], *(1,) * rank)
    return out, means.reshape(kept), deviations.reshape(kept)


def layer_norm_grad(
    f: Any, g: Any, x: Any, weight: Any, mean: Any, deviation: Any, *, rank: int, needs: Any
) -> Any:
    """All three gradients, whichever are needed; each thread sums up its rows' share of the parameters'."""
    affine = [] if weight is None else [weight]
    if (
        x.size < WORTH
        or not needs[0]
        or not fits(x, g, mean, deviation, *affine)
        or g.shape != x.shape
        or any(v.shape != x.shape[x.ndim - rank :] for v in affine)
    ):
        return rowwise.layer_norm_grad(f, g, x, weight, mean, deviation, rank=rank, needs=needs)
    x, g = plain(x), plain(g)
    matrix, slopes, run = rows_of(x, rank), rows_of(g, rank), rows.layer_norm_grad.ready()
    count, width = matrix.shape
    scale = np.ones(width, FLOAT) if weight is None else plain(weight).reshape(-1)
    dx = np.empty_like(x)
    made, means, deviations = rows_of(dx, rank), plain(mean).reshape(-1), plain(deviation).reshape(-1)
    sums: dict[int, Any] = {}

    def work(a: int, b: int) -> None:
        own = sums[a] = np.zeros((2, width), FLOAT)
        run(slopes, matrix, scale, means, deviations, made, own, a, b)

    share(work, count, 4 * x.size)
    dweight, dbias = sums.pop(min(sums))
    for start in sorted(sums):
        dweight += sums[start][0]
        dbias += sums[start][1]
    shape = x.shape[x.ndim - rank :]
    return dx, dweight.reshape(shape), dbias.reshape(shape)


def cross_entropy(
    f: Any, x: Any, target: Any, weight: Any, *, reduction: str = "mean", ignore_index: int = -100
) -> Any:
    """Loss, and the log-sum-exp of each row."""
    if (
        x.size < _WORTH_LOSS
        or x.ndim != 2
        or not indices_fit(target)
        or not fits(*((x,) if weight is None else (x, weight)))
    ):
        return rowwise.cross_entropy(f, x, target, weight, reduction=reduction, ignore_index=ignore_index)
    _cross_entropy.infer(x, target, weight, reduction=reduction, ignore_index=ignore_index)
    x, count, run = plain(x), x.shape[0], losses.cross_entropy.ready()
    totals, parts = np.empty((count, 1), FLOAT), np.empty((2, count), FLOAT)
    each, weights = parts
    known = _NO_WEIGHT if weight is None else plain(weight)
    outside: list[int] = []
    share(
        lambda a, b: outside.append(run(x, target, known, ignore_index, totals, each, weights, a, b)),
        count,
        5 * x.size,
    )
    if any(outside):
        present_targets(np, target, x.shape[1], ignore_index)  # says which
    if reduction == "none":
        return each, totals
    if reduction == "sum":
        return each.sum(), totals
    present = weights.sum()
    return each.sum() / present if present else np.float32("nan"), totals


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
    """Probabilities times each row's share of the loss, less that share at the target."""
    if (
        x.size < _WORTH_LOSS
        or x.ndim != 2
        or not indices_fit(target)
        or target.shape != x.shape[:1]
        or total.shape != (x.shape[0], 1)
        or getattr(g, "dtype", None) is not FLOAT
        or not fits(x, total)
    ):
        return rowwise.cross_entropy_grad(
            f, g, x, total, target, weight, reduction=reduction, ignore_index=ignore_index
        )
    x, total = plain(x), plain(total)
    present = target != ignore_index
    if weight is None:
        weights = present.astype(FLOAT)
    else:
        weights = np.where(present, weight[np.where(present, target, 0)], np.float32(0))
    if reduction == "mean":
        count = weights.sum()
        weights *= -g / count if count else np.float32(0)
    else:
        weights = weights * -g
    out, run = np.empty_like(x), losses.cross_entropy_grad.ready()
    share(lambda a, b: run(x, total, target, weights, ignore_index, out, a, b), x.shape[0], 4 * x.size)
    return out


COMPOSITES: dict[str, Kernel] = {
    "softmax": softmax,
    "softmax_grad": softmax_grad,
    "log_softmax": log_softmax,
    "log_softmax_grad": log_softmax_grad,
    "layer_norm": layer_norm,
    "layer_norm_grad": layer_norm_grad,
    "cross_entropy": cross_entropy,
    "cross_entropy_grad": cross_entropy_grad,
}

__all__ = ["COMPOSITES"]
