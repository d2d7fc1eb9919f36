"""Attention: means of values, weighted by a softmax of products of queries and keys."""

from __future__ import annotations

import numpy as np

from tenon_target_numpy.templates.normalization import safe_softmax, softmax, softmax_grad


def attention_scores(query: np.ndarray, key: np.ndarray, bias: np.ndarray | None, scale: float) -> np.ndarray:
    """Return ``query @ key.T * scale + bias``."""
    scores = (query * scale) @ key.swapaxes(-1, -2)
    return scores if bias is None else scores + bias


def attention_weights(scores: np.ndarray, bias: np.ndarray | None, causal: bool) -> np.ndarray:
    """Return the weights of the values."""
    return softmax(scores, -1) if bias is None or causal else safe_softmax(scores, -1)


def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | None,
    scale: float,
    causal: bool = False,
) -> np.ndarray:
    """Return ``softmax(query @ key.T * scale + bias) @ value``."""
    return attention_weights(attention_scores(query, key, bias, scale), bias, causal) @ value


def attention_saved(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | None,
    scale: float,
    causal: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``attention``, and of each row of scores the maximum and the reciprocal of the sum of
    exponentials."""
    scores = attention_scores(query, key, bias, scale)
    result = attention_weights(scores, bias, causal) @ value
    peak = scores.max(-1, keepdims=True)
    masked = peak == -np.inf
    peak = np.where(masked, scores.dtype.type(0), peak)
    total = np.exp(scores - peak).sum(-1, keepdims=True)
    share = np.where(masked, scores.dtype.type(0), 1 / total)
    return result, peak[..., 0], share[..., 0]


def attention_grad(
    g: np.ndarray,
    out: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | None,
    peak: np.ndarray,
    share: np.ndarray,
    scale: float,
    needs: tuple[bool, ...],
    causal: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of ``attention`` by query, key and value."""
    weights = attention_weights(attention_scores(query, key, bias, scale), bias, causal)
    slopes = softmax_grad(g @ value.swapaxes(-1, -2), weights, -1)
    dvalue = weights.swapaxes(-1, -2) @ g
    return (slopes @ key) * scale, slopes.swapaxes(-1, -2) @ (query * scale), dvalue
