"""Softmax, norms and losses of large float32 arrays, by compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.ops import cross_entropy as _cross_entropy
from tenon.ops.composite.classification import present_targets
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, plain, share
from tenon_cpu.jit.loops import long_rows, losses, rows
from tenon_cpu.kernels.blocks import rows_of

_NO_WEIGHT = np.empty(0, np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax along the last axis."""
    x = plain(x)
    out, matrix = np.empty_like(x), rows_of(x)
    share(rows.softmax, (matrix, rows_of(out)), matrix.shape[0], 5 * x.size)
    return out


def softmax_grad(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The gradient of softmax along the last axis."""
    g, out = plain(g), plain(out)
    dx, slopes = np.empty_like(g), rows_of(g)
    share(rows.softmax_grad, (slopes, rows_of(out), rows_of(dx)), slopes.shape[0], 2 * g.size)
    return dx


def log_softmax(x: np.ndarray) -> np.ndarray:
    """The logarithm of softmax along the last axis."""
    x = plain(x)
    out, matrix = np.empty_like(x), rows_of(x)
    share(rows.log_softmax, (matrix, rows_of(out)), matrix.shape[0], 5 * x.size)
    return out


def log_softmax_grad(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The gradient of ``log_softmax`` along the last axis."""
    g, out = plain(g), plain(out)
    dx, slopes = np.empty_like(g), rows_of(g)
    share(rows.log_softmax_grad, (slopes, rows_of(out), rows_of(dx)), slopes.shape[0], 5 * g.size)
    return dx


def layer_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, *, rank: int, eps: float = 1e-5
) -> tuple[np.ndarray, ...]:
    """Result, mean and reciprocal deviation over the last ``rank`` axes."""
    x = plain(x)
    matrix = rows_of(x, rank)
    count, width = matrix.shape
    out = np.empty_like(x)
    result, means, deviations = rows_of(out, rank), np.empty(count, FLOAT), np.empty(count, FLOAT)
    if width >= long_rows.LONG:
        share(long_rows.standardise, (matrix, np.float32(eps), result, means, deviations), count, 3 * x.size)
        if weight is not None:
            np.multiply(result, weight.reshape(-1), out=result)
        if bias is not None:
            np.add(result, bias.reshape(-1), out=result)
    elif weight is bias is None:
        share(rows.standardise, (matrix, np.float32(eps), result, means, deviations), count, 3 * x.size)
    else:
        scale = np.ones(width, FLOAT) if weight is None else plain(weight).reshape(-1)
        shift = np.zeros(width, FLOAT) if bias is None else plain(bias).reshape(-1)
        arrays = (matrix, scale, shift, np.float32(eps), result, means, deviations)
        share(rows.layer_norm, arrays, count, 3 * x.size)
    shape = (*x.shape[: x.ndim - rank], *(1,) * rank)
    return out, means.reshape(shape), deviations.reshape(shape)


def layer_norm_grad(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray | None, mean: np.ndarray, deviation: np.ndarray,
    *, rank: int, needs: Sequence[bool],
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """The gradients for input, weight and bias; ``g`` in place of one that is not needed.

    Those of the parameters are first summed over blocks of rows.
    """
    x, g = plain(x), plain(g)
    matrix, slopes = rows_of(x, rank), rows_of(g, rank)
    count, width = matrix.shape
    dx, blocks = np.empty_like(x), -(-count // rows.BLOCK)
    result, means, deviations = rows_of(dx, rank), plain(mean).reshape(-1), plain(deviation).reshape(-1)
    shape = x.shape[x.ndim - rank :]
    if width >= long_rows.LONG:
        inner = slopes if weight is None else slopes * weight.reshape(-1)
        share(long_rows.standardise_grad, (inner, matrix, means, deviations, result), count, 4 * x.size)
        dweight = dbias = g
        if needs[1]:
            normal = (matrix - means[:, None]) * deviations[:, None]
            dweight = np.einsum("ij,ij->j", slopes, normal).reshape(shape)
        if needs[2]:
            dbias = np.add.reduce(slopes, 0).reshape(shape)
        return dx, dweight, dbias
    if weight is None and not any(needs[1:]):
        share(rows.standardise_grad, (slopes, matrix, means, deviations, result), count, 4 * x.size)
        return dx, g, g
    scale = np.ones(width, FLOAT) if weight is None else plain(weight).reshape(-1)
    sums = np.empty((2 * blocks, width), FLOAT)
    arrays = (slopes, matrix, scale, means, deviations, result, sums)
    share(rows.layer_norm_grad, arrays, blocks, 4 * x.size)
    dweight, dbias = np.add.reduce(sums.reshape(blocks, 2, width), 0)
    return dx, dweight.reshape(shape), dbias.reshape(shape)


def cross_entropy(
    x: np.ndarray, target: np.ndarray, weight: np.ndarray | None, *, reduction: str = "mean",
    ignore_index: int = -100,
) -> tuple[np.ndarray | np.floating, np.ndarray]:  # fmt: skip
    """The loss, and the log-sum-exp of each row."""
    _cross_entropy.infer(x, target, weight, reduction=reduction, ignore_index=ignore_index)
    x, count = plain(x), x.shape[0]
    totals, parts = np.empty((count, 1), FLOAT), np.empty((2, count), FLOAT)
    each, weights = parts
    known = _NO_WEIGHT if weight is None else plain(weight)
    outside = np.zeros(1, INDEX)
    arrays = (x, target, known, ignore_index, totals, each, weights, outside)
    share(losses.cross_entropy, arrays, count, 5 * x.size)
    if outside[0]:
        present_targets(np, target, x.shape[1], ignore_index)  # raises the error
    if reduction == "none":
        return each, totals
    if reduction == "sum":
        return each.sum(), totals
    present = weights.sum()
    return each.sum() / present if present else np.float32("nan"), totals


def slopes_of(
    g: np.ndarray | np.floating, target: np.ndarray, weight: np.ndarray | None, reduction: str,
    ignore_index: int,
) -> np.ndarray:  # fmt: skip
    """Each target's share of the loss, times ``-g``."""
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
    return weights


def cross_entropy_grad(
    g: np.ndarray | np.floating, x: np.ndarray, total: np.ndarray, target: np.ndarray,
    weight: np.ndarray | None, *, reduction: str = "mean", ignore_index: int = -100,
    out: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Each row's probabilities times its share of the loss, minus that share at the target.

    ``out``, where the result is written, may be ``x``.
    """
    x, total = plain(x), plain(total)
    weights = slopes_of(g, target, weight, reduction, ignore_index)
    out = np.empty_like(x) if out is None else out
    arrays = (x, total, target, weights, ignore_index, out)
    share(losses.cross_entropy_grad, arrays, x.shape[0], 4 * x.size)
    return out


__all__ = [
    "cross_entropy",
    "cross_entropy_grad",
    "layer_norm",
    "layer_norm_grad",
    "log_softmax",
    "log_softmax_grad",
    "slopes_of",
    "softmax",
    "softmax_grad",
]
