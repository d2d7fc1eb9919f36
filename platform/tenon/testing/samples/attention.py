"""Samples of attention as one op."""

from __future__ import annotations

import numpy as np

from tenon.testing.samples.draw import normal, values
from tenon.testing.samples.table import add

_INF = float("inf")


def _attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | None,
    scale: float,
    causal: bool = False,
) -> np.ndarray:
    scores = np.matmul(query * np.asarray(scale, query.dtype), np.swapaxes(key, -1, -2))
    scores = scores if bias is None else scores + bias
    peak = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(peak == -_INF, 0, peak))
    total = powers.sum(-1, keepdims=True)
    return np.matmul(powers / np.where(total == 0, 1, total), value).astype(query.dtype)


_MASK = values(0, -_INF, 1, -_INF, -_INF, -_INF, 0.5, 0, 0, -_INF, 0, 2, shape=(4, 3), dtype="float32")
_TRIANGLE = values(0, -_INF, -_INF, 0, 0, -_INF, 0, 0, 0, shape=(3, 3), dtype="float32")
_SCALE = {"scale": 0.5}

add("attention", "heads", normal(2, 2, 4, 3), normal(2, 2, 5, 3), normal(2, 2, 5, 3), None, reference=_attention,
    attrs=_SCALE, loose=8.0, narrow=False)  # fmt: skip
add("attention", "masked", normal(2, 4, 3), normal(2, 3, 3), normal(2, 3, 3), _MASK, reference=_attention,
    attrs=_SCALE, constant=(3,), loose=8.0, narrow=False)  # fmt: skip
add("attention", "causal", normal(2, 3, 2), normal(2, 3, 2), normal(2, 3, 2), _TRIANGLE, reference=_attention,
    attrs=_SCALE | {"causal": True}, constant=(3,), loose=8.0, narrow=False)  # fmt: skip
_ROWS = normal(2, 3, 4)
add("attention_grad", "heads", _ROWS, _ROWS, _ROWS, normal(2, 5, 4), normal(2, 5, 4), None, normal(2, 3), normal(2, 3),
    attrs=_SCALE | {"needs": (True, True, True)}, order=0, narrow=False)  # fmt: skip
