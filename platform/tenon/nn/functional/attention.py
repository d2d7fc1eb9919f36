"""Scaled dot-product attention."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.device import Device
from tenon.dtypes import float32
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.kernels.backend import backend_for
from tenon.kernels.shapes import broadcast_shapes
from tenon.nn.functional.dropout import dropout
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.engine.types import Array
    from tenon.tensors.tensor import Tensor

#: Maximum number of elements of a causal mask that is cached for later calls.
_CACHED_ELEMENTS = 1 << 20


def _title(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    *args: bool,
    **kwargs: object,
) -> str:
    """Return PyTorch's name of the gradient: that of its CPU kernel, or of the last matrix product."""
    q, k, v = query.raw, key.raw, value.raw
    if q.ndim < 3:
        return ""
    if not (q.size or q.shape[-1] == 0) or not k.shape[-2]:
        return "Add0"
    plain = dropout_p == 0 and q.ndim == 4 and q.shape[-1] == v.shape[-1] != 0 and k.shape[:2] == v.shape[:2]
    if attn_mask is not None:
        plain = plain and attn_mask.raw.ndim in (2, 4) and not attn_mask.requires_grad
    same = q.shape[0] == k.shape[0] and (q.shape[1] == k.shape[1] or kwargs.get("enable_gqa"))
    return "ScaledDotProductFlashAttentionForCpu0" if plain and same else "UnsafeView0"


@titled(_title)
@runs_in("lower")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value``: ``[..., H, L, E]``, ``[..., H, S, E]`` and
    ``[..., H, S, Ev]`` to ``[..., H, L, Ev]``.

    ``attn_mask`` broadcasts to ``[..., H, L, S]``: a boolean mask is True where a query may attend, a float
    mask is added to the scores. ``is_causal`` lets query ``i`` attend to keys up to ``i``. A query that may
    attend to no key gets 0. ``enable_gqa`` shares each head of keys and values among ``H / Hkv`` heads of
    queries.

    16-bit floats are computed in float32 and rounded once. Dropout applies in evaluation too; for a seed it
    draws the numbers that PyTorch draws on the CPU.
    """
    _check(query, key, value, attn_mask, is_causal)
    kind = query.raw.dtype
    if kind.itemsize == 2:
        query, key, value = (x.to(float32) for x in (query, key, value))
    factor = query.raw.shape[-1] ** -0.5 if scale is None and query.raw.shape[-1] else scale
    plain = dropout_p == 0 and (attn_mask is None or not attn_mask.requires_grad)
    if plain and _is_fused(query, key, value):
        result = _fused(query, key, value, attn_mask, is_causal, 1.0 if factor is None else factor)
        return f.cast(result, dtype=kind) if kind.itemsize == 2 else result
    if factor is not None and factor != 1.0:
        query = query * factor
    scores = _matmul_heads(query, key.transpose(-2, -1), "key", enable_gqa)
    if is_causal:
        scores = scores + _causal(query, key)
    elif attn_mask is not None:
        scores = scores + _bias(attn_mask, scores, tuple(scores.raw.shape))
    axis = scores.raw.ndim - 1
    weights = f.softmax(scores, axis=axis) if attn_mask is None else f.safe_softmax(scores, axis=axis)
    if dropout_p != 0:  # which refuses what is no probability
        weights = dropout(weights.contiguous(), dropout_p)  # in PyTorch's order of draws
    result = _matmul_heads(weights, value, "value", enable_gqa)
    return f.cast(result, dtype=kind) if kind.itemsize == 2 else result


def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool) -> None:
    """Raise for what PyTorch refuses, and for different numbers of keys and values, where PyTorch reads out
    of bounds."""
    q, k, v = query.raw, key.raw, value.raw
    if q.ndim < 2 or k.ndim < 2 or v.ndim < 2:
        raise ShapeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim:"
            f" {q.ndim} key.dim: {k.ndim} and value.dim: {v.ndim} instead."
        )
    if q.dtype != k.dtype or q.dtype != v.dtype:
        raise DTypeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype:"
            f" {query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    if q.dtype.kind not in "fV":
        raise DTypeError(
            f"scaled_dot_product_attention: expected floating point tensors, got {query.dtype}."
            " Convert them with .float()."
        )
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            "scaled_dot_product_attention: queries and keys must have the same last size, keys and values the"
            f" same number: got query {list(q.shape)}, key {list(k.shape)}, value {list(v.shape)}."
        )
    if attn_mask is None:
        return
    if is_causal:
        raise ArgumentError(
            "scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True;"
            " set one of them."
        )
    kind = attn_mask.raw.dtype
    if kind.kind != "b" and kind != q.dtype and kind != np.float32:
        raise DTypeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype:"
            f" {attn_mask.dtype} and  query.dtype: {query.dtype} instead."
        )


def _is_fused(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether to call the op ``attention``: where the backend is faster with it, or for programs of all sizes
    wherever shapes allow, so that none of them has other ops."""
    q, k = query.raw, key.raw
    if WATCHERS.recorder is not None and WATCHERS.recorder.any_size:
        return bool(2 < q.ndim < 5 and q.shape[:-2] == k.shape[:-2] and k.shape == value.raw.shape)
    return bool(query._backend.has_attention_kernel(q, k, value.raw))


def _matmul_heads(x: Tensor, y: Tensor, name: str, grouped: bool) -> Tensor:
    """Return ``x @ y``; if ``grouped``, each head of ``y`` serves several consecutive heads of ``x``."""
    a, b = x.raw.shape, y.raw.shape
    if not grouped or len(a) < 3 or len(b) < 3 or a[-3] == b[-3]:
        return f.matmul(x, y)
    if not b[-3] or a[-3] % b[-3]:
        raise ShapeError(
            "Number of heads in key and value must divide the number of heads in query: got"
            f" {b[-3]} heads of {name}s for {a[-3]} of queries."
        )
    rows = x.reshape(*a[:-3], b[-3], a[-3] // b[-3] * a[-2], a[-1])
    product = f.matmul(rows, y)
    return product.reshape(*product.raw.shape[:-3], a[-3], a[-2], b[-1])


def _fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """Return the result of the op ``attention``, for which the backend has one kernel."""
    bias = _causal(query, key) if causal else None
    if mask is not None:
        bias = _bias(mask, query, (*query.raw.shape[:-1], key.raw.shape[-2]))
    return f.attention(query, key, value, bias, scale=scale, causal=causal)


def _bias(mask: Tensor, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return ``mask`` as an additive bias for scores of ``shape``."""
    if broadcast_shapes(shape, tuple(mask.raw.shape)) != shape:
        raise ShapeError(
            f"scaled_dot_product_attention: attn_mask {list(mask.raw.shape)} does not broadcast to the"
            f" scores' shape {list(shape)}. Remove its leading axes, or give queries and keys the same."
        )
    return f.where(mask, like.new_zeros(()), -math.inf) if mask.raw.dtype.kind == "b" else mask


def _causal(query: Tensor, key: Tensor) -> Tensor:
    """Return the causal mask: 0 where a query attends to its own and earlier positions, else -inf."""
    rows, columns, device = query.raw.shape[-2], key.raw.shape[-2], query.device
    create = _triangle if rows * columns <= _CACHED_ELEMENTS else _triangle.__wrapped__
    mask = Value.make(create(rows, columns, query.raw.dtype, device), query._backend)
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.made(mask.raw)
    return mask


@functools.lru_cache(8)
def _triangle(rows: int, columns: int, dtype: np.dtype[np.generic], device: Device) -> Array:
    """Return the causal mask as an array, cached: creating it took a fifth of a small attention's time."""
    host = np.where(np.tri(rows, columns, dtype=np.bool_), 0, -math.inf).astype(dtype)
    return backend_for(device).from_host(host, device)


__all__ = ["scaled_dot_product_attention"]
