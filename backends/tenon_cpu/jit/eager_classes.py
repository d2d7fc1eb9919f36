"""Losses over the classes of images, and at targets alone, of large float32 arrays, by compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import nll_loss as _nll_loss
from tenon.ops.composite.classification import present_targets
from tenon_cpu.jit import eager_rows, losses
from tenon_cpu.jit.calls import FLOAT, INDEX, WORTH, fits, indices_fit, plain, share

_NONE = np.empty(0, FLOAT)
_NO_TOTALS = np.empty((0, 0), FLOAT)


def _fit(x: Any, target: Any, weight: Any) -> bool:
    """Kernels serve, and shapes are right; the reference says what is wrong with others."""
    shape = x.shape
    return bool(
        x.ndim > 1
        and x.size >= WORTH
        and target.size
        and target.shape == (shape[0], *shape[2:])
        and indices_fit(target)
        and (fits(x) if weight is None else weight.shape == shape[1:2] and fits(x, weight))
    )


def _images(x: Any) -> Any:
    return plain(x).reshape(x.shape[0], x.shape[1], -1)


def _reduced(x: Any, totals: Any, target: Any, weight: Any, reduction: str, ignore_index: int) -> Any:
    """The loss at each target, or their sum or mean."""
    parts = np.empty((2, *target.shape), FLOAT)
    each, weights = parts.reshape(2, x.shape[0], -1)
    outside, known = np.zeros(1, INDEX), _NONE if weight is None else plain(weight)
    places = target.reshape(each.shape)
    arrays = (_images(x), totals, places, known, ignore_index, each, weights, outside)
    share(losses.picked, arrays, x.shape[0], 20 * target.size)
    if outside[0]:
        present_targets(np, target, x.shape[1], ignore_index)  # says which
    if reduction == "none":
        return parts[0]
    if reduction == "sum":
        return each.sum()
    present = weights.sum()
    return each.sum() / present if present else np.float32("nan")


def nll_loss(x: Any, target: Any, weight: Any, *, reduction: str = "mean", ignore_index: int = -100) -> Any:
    """One walk over the targets."""
    if not _fit(x, target, weight):
        return _nll_loss.forward(np, x, target, weight, reduction=reduction, ignore_index=ignore_index)
    return _reduced(x, _NO_TOTALS, target, weight, reduction, ignore_index)


def cross_entropy(
    f: Any, x: Any, target: Any, weight: Any, *, reduction: str = "mean", ignore_index: int = -100
) -> Any:
    """Of images: loss, and the log-sum-exp of each place; rows elsewhere."""
    if x.ndim < 3 or not _fit(x, target, weight):
        return eager_rows.cross_entropy(f, x, target, weight, reduction=reduction, ignore_index=ignore_index)
    given = _images(x)
    peaks, totals = np.empty((2, given.shape[0], given.shape[2]), FLOAT)
    share(losses.powers, (given, peaks, totals), given.shape[0], 6 * x.size)
    np.add(np.log(totals, out=totals), peaks, out=totals)
    loss = _reduced(x, totals, target, weight, reduction, ignore_index)
    return loss, totals.reshape(x.shape[0], 1, *x.shape[2:])


def cross_entropy_grad(f: Any, g: Any, x: Any, total: Any, target: Any, weight: Any, **attrs: Any) -> Any:
    """Of images; rows elsewhere."""
    whole = (*x.shape[:1], 1, *x.shape[2:])
    if (
        x.ndim < 3
        or not _fit(x, target, weight)
        or total.shape != whole
        or not fits(total)
        or getattr(g, "dtype", None) is not FLOAT
    ):
        return eager_rows.cross_entropy_grad(f, g, x, total, target, weight, **attrs)
    reduction, ignored = attrs.get("reduction", "mean"), attrs.get("ignore_index", -100)
    slopes = plain(eager_rows.slopes_of(g, target, weight, reduction, ignored))
    out, given = np.empty(x.shape, FLOAT), _images(x)
    places = (given.shape[0], given.shape[2])
    arrays = (given, *(a.reshape(places) for a in (plain(total), target, slopes)), ignored, _images(out))
    share(losses.images_grad, arrays, places[0], 5 * x.size)
    return out


KERNELS: dict[str, Kernel] = {"nll_loss": nll_loss}
COMPOSITES: dict[str, Kernel] = {"cross_entropy": cross_entropy, "cross_entropy_grad": cross_entropy_grad}

__all__ = ["COMPOSITES", "KERNELS"]
