"""Losses over classes, which are along axis 1, or the only axis."""

from __future__ import annotations

import numpy as np

from tenon_target_numpy.templates.normalization import log_softmax_grad, logsumexp


def present_targets(target: np.ndarray, classes: int, ignore_index: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which targets count, and the targets with 0 in place of ignored ones."""
    present = np.asarray(target != ignore_index)
    outside = present & ((target < 0) | (target >= classes))
    if outside.any():
        raise IndexError(f"target {target[outside].reshape(-1)[0]} is not one of {classes} classes.")
    return present, np.where(present, target, 0)


def target_weights(
    present: np.ndarray, safe: np.ndarray, weight: np.ndarray | None, dtype: np.dtype
) -> np.ndarray:
    """Return the weight of each target; 0 where it is ignored."""
    return present.astype(dtype) if weight is None else np.where(present, weight[safe], dtype.type(0))


def nll_loss(
    x: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> np.ndarray:
    """Return ``-weight[target] * x[target]``, reduced."""
    axis = min(x.ndim - 1, 1)
    present, safe = present_targets(target, x.shape[axis], ignore_index)
    picked = np.take_along_axis(x, np.expand_dims(safe, axis), axis).squeeze(axis)
    weights = target_weights(present, safe, weight, x.dtype)
    losses = np.where(present, -(weights * picked), x.dtype.type(0))
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / weights.sum()


def nll_loss_grad(
    g: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    shape: tuple[int, ...],
    reduction: str = "mean",
    ignore_index: int = -100,
) -> np.ndarray:
    """Return the gradient of ``nll_loss`` by an input of ``shape``."""
    result = np.zeros(shape, g.dtype)
    axis = min(len(shape) - 1, 1)
    present, safe = present_targets(target, shape[axis], ignore_index)
    weights = target_weights(present, safe, weight, g.dtype)
    slopes = -weights * g
    if reduction == "mean":
        total = weights.sum()
        slopes = weights * (-g / total) if total else np.zeros_like(weights)
    np.put_along_axis(result, np.expand_dims(safe, axis), np.expand_dims(slopes, axis), axis)
    return result


def cross_entropy_saved(
    x: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``cross_entropy``, and the logarithm of each sum of exponentials."""
    total = logsumexp(x, (min(x.ndim - 1, 1),), True)
    return nll_loss(x - total, target, weight, reduction, ignore_index), total


def cross_entropy(
    x: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> np.ndarray:
    """Return ``nll_loss`` of the logarithm of the softmax of ``x``."""
    return cross_entropy_saved(x, target, weight, reduction, ignore_index)[0]


def cross_entropy_grad(
    g: np.ndarray,
    x: np.ndarray,
    total: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> np.ndarray:
    """Return the gradient of ``cross_entropy`` by ``x``."""
    picked = nll_loss_grad(g, target, weight, x.shape, reduction, ignore_index)
    return log_softmax_grad(picked, x - total, min(x.ndim - 1, 1))
