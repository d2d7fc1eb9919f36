"""Samples of losses."""

from __future__ import annotations

import itertools

import numpy as np

from tenon.testing.samples.draw import integer, normal, uniform, values
from tenon.testing.samples.table import Reference, add

REDUCTIONS = ("none", "mean", "sum")


def _reduce(losses: np.ndarray, reduction: str) -> np.ndarray:
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.mean()


def _pair(function: Reference) -> Reference:
    def reference(
        x: np.ndarray, y: np.ndarray, *rest: np.ndarray, reduction: str = "mean", **attrs: object
    ) -> np.ndarray:
        result = _reduce(function(x.astype(np.float64), y.astype(np.float64), *rest, **attrs), reduction)
        return np.asarray(result).astype(x.dtype)

    return reference


def _smooth(x: np.ndarray, y: np.ndarray, **attrs: float) -> np.ndarray:
    gap = np.abs(x - y)
    return np.where(gap < 1, 0.5 * gap**2, gap - 0.5)


_PAIRS: dict[str, Reference] = {
    "mse_loss": lambda x, y: (x - y) ** 2, "l1_loss": lambda x, y: np.abs(x - y), "smooth_l1_loss": _smooth, "huber_loss": _smooth,
}  # fmt: skip
for _op, _function in _PAIRS.items():
    _more = {"smooth_l1_loss": {"beta": 1.0}, "huber_loss": {"delta": 1.0}}.get(_op, {})
    for _reduction in REDUCTIONS:
        add(
            _op,
            _reduction,
            normal(3, 4),
            normal(3, 4),
            reference=_pair(_function),
            attrs={"reduction": _reduction, **_more},
            loose=8.0,
        )


def _logits(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, pos_weight: np.ndarray | None
) -> np.ndarray:
    p = 1 / (1 + np.exp(-x))
    result = -((1 if pos_weight is None else pos_weight) * y * np.log(p) + (1 - y) * np.log(1 - p))
    return result if weight is None else result * weight


def _entropy(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    result = -(y * np.log(x) + (1 - y) * np.log(1 - x))
    return result if weight is None else result * weight


for _reduction in REDUCTIONS:
    add("binary_cross_entropy_with_logits", _reduction, normal(3, 4), uniform(0, 1, 3, 4), None, None,
        reference=_pair(_logits), attrs={"reduction": _reduction}, loose=8.0)  # fmt: skip
    add("binary_cross_entropy", _reduction, uniform(0.1, 0.9, 3, 4), uniform(0, 1, 3, 4), None, reference=_pair(_entropy),
        attrs={"reduction": _reduction}, loose=8.0, narrow=False)  # fmt: skip
add("binary_cross_entropy_with_logits", "weights", normal(3, 4), uniform(0, 1, 3, 4), uniform(1, 2, 4), uniform(1, 2, 4),
    reference=_pair(_logits), loose=8.0, constant=(2, 3), narrow=False)  # fmt: skip


def _nll(
    x: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> np.ndarray:
    moved = np.moveaxis(x, 1, -1) if x.ndim > 1 else x
    counted = target != ignore_index
    safe = np.where(counted, target, 0)
    w = np.where(counted, 1.0 if weight is None else weight[safe], 0.0)
    losses = -np.take_along_axis(moved, safe[..., None], -1)[..., 0] * w
    result = losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.sum() / w.sum()
    return np.asarray(result).astype(x.dtype)


def _cross_entropy(
    x: np.ndarray, target: np.ndarray, weight: np.ndarray | None, **attrs: object
) -> np.ndarray:
    axis = 1 if x.ndim > 1 else 0
    wide = x.astype(np.float64)
    logs = wide - np.log(np.exp(wide).sum(axis=axis, keepdims=True))
    return _nll(logs, target, weight, **attrs).astype(x.dtype)


_LABELS = integer(0, 4, 5)
for _op, _reference in {"nll_loss": _nll, "cross_entropy": _cross_entropy}.items():
    for _reduction in REDUCTIONS:
        add(
            _op,
            _reduction,
            normal(5, 4),
            _LABELS,
            None,
            reference=_reference,
            attrs={"reduction": _reduction},
            loose=8.0,
        )
    add(
        _op,
        "weighted",
        normal(5, 4),
        _LABELS,
        uniform(0.5, 2, 4),
        reference=_reference,
        loose=8.0,
        constant=(2,),
        narrow=False,
    )
    add(
        _op,
        "ignored",
        normal(3, 4),
        values(1, 3, 0, dtype="int64"),
        None,
        reference=_reference,
        attrs={"ignore_index": 3},
        loose=8.0,
    )
    add(_op, "pixels", normal(2, 4, 3), integer(0, 4, 2, 3), None, reference=_reference, loose=8.0)
add("nll_loss_grad", "mean", normal(), _LABELS, None, attrs={"shape": (5, 4)}, order=1)
add("cross_entropy_grad", "mean", normal(), normal(5, 4), normal(5, 1), _LABELS, None, order=0)


def _ctc(
    log_probs: np.ndarray, targets: np.ndarray, inputs: np.ndarray, lengths: np.ndarray, blank: int = 0
) -> np.ndarray:
    """Sum the probabilities of all alignments."""
    _, count, classes = log_probs.shape
    probability = np.zeros(count)
    for n in range(count):
        labels = list(targets[n, : lengths[n]])
        for path in itertools.product(range(classes), repeat=int(inputs[n])):
            if [c for c, _ in itertools.groupby(path) if c != blank] == labels:
                probability[n] += np.exp(sum(float(log_probs[t, n, c]) for t, c in enumerate(path)))
    return -np.log(probability).astype(log_probs.dtype)


_CTC = (integer(1, 3, 2, 2), values(4, 3, dtype="int64"), values(2, 1, dtype="int64"))
add("ctc_loss", "padded", normal(4, 2, 3), *_CTC, reference=_ctc, loose=8.0, order=0, narrow=False)
add(
    "ctc_loss_grad",
    "padded",
    normal(2),
    normal(2),
    normal(4, 2, 5),
    normal(4, 2, 3),
    *_CTC,
    order=0,
    narrow=False,
)
