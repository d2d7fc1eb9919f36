"""Cross entropy per pixel, and negative log likelihood, of large float32 arrays, by compiled kernels."""

from __future__ import annotations

import numpy as np

from tenon.ops.composite.classification import present_targets
from tenon_cpu.jit.eager_ops import rows as eager_rows
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, plain, share
from tenon_cpu.jit.loops import losses

_NONE = np.empty(0, FLOAT)
_NO_TOTALS = np.empty((0, 0), FLOAT)


def shapes_fit(x: np.ndarray, target: np.ndarray, weight: np.ndarray | None) -> bool:
    """Whether the shapes are those of a loss; the reference raises the error for others."""
    shape = x.shape
    return bool(
        target.size
        and target.shape == (shape[0], *shape[2:])
        and (weight is None or weight.shape == shape[1:2])
    )


def _images(x: np.ndarray) -> np.ndarray:
    """``x`` as ``[N, C, places]``."""
    return plain(x).reshape(x.shape[0], x.shape[1], -1)


def _reduced(
    x: np.ndarray, totals: np.ndarray, target: np.ndarray, weight: np.ndarray | None, reduction: str,
    ignore_index: int,
) -> np.ndarray | np.floating:  # fmt: skip
    """The loss at each target, or their sum or mean."""
    parts = np.empty((2, *target.shape), FLOAT)
    each, weights = parts.reshape(2, x.shape[0], -1)
    outside, known = np.zeros(1, INDEX), _NONE if weight is None else plain(weight)
    places = target.reshape(each.shape)
    arrays = (_images(x), totals, places, known, ignore_index, each, weights, outside)
    share(losses.nll_images, arrays, x.shape[0], 20 * target.size)
    if outside[0]:
        present_targets(np, target, x.shape[1], ignore_index)  # raises the error
    if reduction == "none":
        return parts[0]
    if reduction == "sum":
        return each.sum()
    present = weights.sum()
    return each.sum() / present if present else np.float32("nan")


def nll_loss(
    x: np.ndarray, target: np.ndarray, weight: np.ndarray | None, *, reduction: str = "mean",
    ignore_index: int = -100,
) -> np.ndarray | np.floating:  # fmt: skip
    """The negative log likelihood of the targets, in one pass."""
    return _reduced(x, _NO_TOTALS, target, weight, reduction, ignore_index)


def cross_entropy(
    x: np.ndarray, target: np.ndarray, weight: np.ndarray | None, *, reduction: str = "mean",
    ignore_index: int = -100,
) -> tuple[np.ndarray | np.floating, np.ndarray]:  # fmt: skip
    """The loss of images ``[N, C, *S]``, and the log-sum-exp over classes at each pixel."""
    images = _images(x)
    peaks, totals = np.empty((2, images.shape[0], images.shape[2]), FLOAT)
    share(losses.max_and_exp_sums, (images, peaks, totals), images.shape[0], 6 * x.size)
    np.add(np.log(totals, out=totals), peaks, out=totals)
    loss = _reduced(x, totals, target, weight, reduction, ignore_index)
    return loss, totals.reshape(x.shape[0], 1, *x.shape[2:])


def cross_entropy_grad(
    g: np.ndarray | np.floating, x: np.ndarray, total: np.ndarray, target: np.ndarray,
    weight: np.ndarray | None, *, reduction: str = "mean", ignore_index: int = -100,
) -> np.ndarray:  # fmt: skip
    """The gradient of the loss of images for ``x``."""
    slopes = plain(eager_rows.slopes_of(g, target, weight, reduction, ignore_index))
    out, images = np.empty(x.shape, FLOAT), _images(x)
    places = (images.shape[0], images.shape[2])
    totals, targets, slopes = (a.reshape(places) for a in (plain(total), target, slopes))
    arrays = (images, totals, targets, slopes, ignore_index, _images(out))
    share(losses.images_grad, arrays, places[0], 5 * x.size)
    return out


__all__ = ["cross_entropy", "cross_entropy_grad", "nll_loss", "shapes_fit"]
