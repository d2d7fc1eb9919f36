"""Attention: weighted means of values."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tenon.ops  # noqa: F401 - a table without ops finds nothing
from tenon.core import watch
from tenon.core.backend import backend_for
from tenon.core.op import table as f
from tenon.core.precision import runs_in
from tenon.core.value import Value
from tenon.device import Device
from tenon.errors import ModuleValueError, UnsupportedError
from tenon.nn.functional.dropout import dropout

#: Elements of a mask up to which it is kept for the next call.
_KEPT = 1 << 20


@runs_in("lower")
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``softmax(query @ key.T * scale + mask) @ value``; a boolean mask is True where attention is
    allowed."""
    if enable_gqa:
        raise UnsupportedError(
            "scaled_dot_product_attention: enable_gqa=True is not supported; repeat the heads."
        )
    if is_causal:
        if attn_mask is not None:
            raise ModuleValueError(
                "scaled_dot_product_attention: set either attn_mask or is_causal, not both."
            )
        attn_mask = _causal(query, key)
    scores = f.matmul(query, key.transpose(-2, -1)) * (
        query.raw.shape[-1] ** -0.5 if scale is None else scale
    )
    if attn_mask is not None:
        if attn_mask.raw.dtype.kind == "b":
            scores = f.where(attn_mask, scores, float("-inf"))
        else:
            scores = scores + attn_mask
    weights = f.softmax(scores, axis=scores.raw.ndim - 1)
    return f.matmul(dropout(weights, dropout_p) if dropout_p else weights, value)


def _causal(query: Any, key: Any) -> Any:
    """True where a query may see a key: at its own place and before."""
    rows, columns, device = query.raw.shape[-2], key.raw.shape[-2], query.device
    made = _triangle if rows * columns <= _KEPT else _triangle.__wrapped__
    mask = Value.make(made(rows, columns, device), backend_for(device))
    if watch.recorder is not None:
        watch.recorder.made(mask.raw)
    return mask


@functools.lru_cache(8)
def _triangle(rows: int, columns: int, device: Device) -> Any:
    """An array that nobody writes: making it took a fifth of a small attention's time."""
    return backend_for(device).from_host(np.tri(rows, columns, dtype=np.bool_), device)


__all__ = ["scaled_dot_product_attention"]
