"""``multi_head_attention_forward``: projections, attention of each head, and the projection of their results.

Queries, keys and values come as ``[L, N, E]``. Heads are views of the projections: ``[N, H, L, E / H]``.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.errors import AttentionError, DTypeError, ModuleError, PaddingMaskError, TenonWarning
from tenon.nn.functional.attention import scaled_dot_product_attention
from tenon.nn.functional.dropout import dropout
from tenon.nn.functional.linear import linear
from tenon.tensors.creation.factories import zeros

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """The attended values ``[L, N, E]`` (or ``[L, E]``) and, if ``need_weights``, the weights: of all heads
    ``[N, H, L, S]``, or their mean ``[N, L, S]``.

    ``query`` is ``[L, N, E]``, ``key`` and ``value`` are ``[S, N, E]``, all without ``N`` if unbatched.
    Boolean masks are True where nobody may look: ``key_padding_mask[N, S]``, ``attn_mask[L, S]`` or
    ``[N * H, L, S]``; float ones are added. ``is_causal`` says that ``attn_mask`` is the causal one. A query
    that may look nowhere gets NaN with ``need_weights``, else 0.
    """
    batched = _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    same = (query is key, key is value)
    if not batched:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, _ = query.raw.shape
    padding = additive_mask(key_padding_mask, "key_padding_mask", query, attn_mask, "attn_mask")
    if is_causal and attn_mask is None:
        raise ModuleError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method"
            " `generate_square_subsequent_mask` to create this mask."
        )
    is_causal = is_causal and padding is None and not need_weights
    mask = None if is_causal else additive_mask(attn_mask, "attn_mask", query)
    _check_sizes(query, key, value, embed_dim_to_check, use_separate_proj_weight)
    if use_separate_proj_weight:
        weights = [q_proj_weight, k_proj_weight, v_proj_weight]
        q, k, v = _project(query, key, value, weights, in_proj_bias)
    else:
        q, k, v = _project_packed(query, key, value, same, in_proj_weight, in_proj_bias)
    width = q.raw.shape[-1]  # E, or less where heads have been removed
    if width % num_heads:
        raise AttentionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if mask is not None:
        mask = _as_3d(mask, batch * num_heads, length, key.raw.shape[0])
    q = _heads(q, num_heads)
    biases, statics = (bias_k, bias_v), (static_k, static_v)
    k, v = _keys_and_values(k, v, biases, statics, add_zero_attn, (batch, num_heads, width // num_heads))
    extra = (bias_k is not None) + add_zero_attn
    mask = _merged(mask, padding, extra, (batch, num_heads, k.raw.shape[2]))
    dropout_p = dropout_p if training else 0.0
    if need_weights:
        made, attended = _attend_openly(q, k, v, mask, dropout_p)
        attended = attended.mean(1) if average_attn_weights else attended
    else:
        made, attended = scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal), None
    made = linear(made.permute(2, 0, 1, 3).reshape(length, batch, width), out_proj_weight, out_proj_bias)
    if not batched:
        return made.squeeze(1), None if attended is None else attended.squeeze(0)
    return made, attended


def additive_mask(
    mask: Tensor | None, name: str, like: Tensor, other: Tensor | None = None, other_name: str = ""
) -> Tensor | None:
    """``mask`` as numbers to add, of ``like``'s dtype if it is boolean: True becomes minus infinity."""
    if mask is None:
        return None
    boolean = mask.raw.dtype.kind == "b"
    if not boolean and not mask.dtype.is_floating_point:
        raise AttentionError(f"only bool and floating types of {name} are supported, got {mask.dtype}.")
    if other is not None and other.dtype != mask.dtype:
        warnings.warn(
            f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both instead.",
            TenonWarning,
            stacklevel=4,
        )
    return f.where(mask, -math.inf, like.new_zeros(())) if boolean else mask


def _check_ranks(query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any, heads: int) -> bool:
    """Whether the input is batched; AttentionError unless everything has the ranks that go with it."""
    rank, given = query.raw.ndim, (key.raw.ndim, value.raw.ndim)
    if rank not in (2, 3):
        raise AttentionError(
            f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor"
        )
    kind = f"For {'batched' if rank == 3 else 'unbatched'} ({rank}-D) `query`, expected"
    if given != (rank, rank):
        raise AttentionError(
            f"{kind} `key` and `value` to be {rank}-D but found {given[0]}-D and {given[1]}-D tensors"
            " respectively"
        )
    if padding is not None and padding.raw.ndim != rank - 1:
        raise AttentionError(
            f"{kind} `key_padding_mask` to be `None` or {rank - 1}-D but found {padding.raw.ndim}-D tensor"
            " instead"
        )
    if mask is not None:
        if mask.raw.ndim not in (2, 3):
            raise AttentionError(
                f"{kind} `attn_mask` to be `None`, 2-D or 3-D but found {mask.raw.ndim}-D tensor instead"
            )
        expected = (heads, query.raw.shape[0], key.raw.shape[0])
        if rank == 2 and mask.raw.ndim == 3 and tuple(mask.raw.shape) != expected:
            raise AttentionError(f"Expected `attn_mask` shape to be {expected} but got {mask.shape}")
    return bool(rank == 3)


def _check_sizes(query: Tensor, key: Tensor, value: Tensor, width: int, separate: bool) -> None:
    found = query.raw.shape[-1]
    if found != width:
        raise AttentionError(f"was expecting embedding dimension of {width}, but got {found}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise AttentionError(
            f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}"
        )
    if not separate and key.shape != value.shape:
        raise AttentionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _project_packed(
    query: Any, key: Any, value: Any, same: tuple[bool, bool], weight: Any, bias: Any
) -> tuple[Any, ...]:
    """Queries, keys and values by one weight ``[3 * E, E]``, with one product for those of one tensor."""
    if weight is None:
        raise AttentionError("use_separate_proj_weight is False but in_proj_weight is None")
    width = weight.raw.shape[0] // 3
    if same == (True, True):
        return tuple(linear(query, weight, bias).split(width, -1))
    if not same[1]:
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        parts = zip((query, key, value), weight.chunk(3), biases, strict=True)
        return tuple(linear(x, w, b) for x, w, b in parts)
    first, rest = weight.split([width, 2 * width])
    biases = (None, None) if bias is None else bias.split([width, 2 * width])
    return linear(query, first, biases[0]), *linear(key, rest, biases[1]).split(width, -1)


def _project(
    query: Tensor, key: Tensor, value: Tensor, weights: list[Any], bias: Tensor | None
) -> tuple[Any, ...]:
    """Queries, keys and values by a weight each."""
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    width = query.raw.shape[-1] if weights[0] is None else weights[0].raw.shape[0]
    made = []
    for name, x, weight, own in zip("qkv", (query, key, value), weights, biases, strict=True):
        if weight is None:
            raise AttentionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
        expected = (width, x.raw.shape[-1])
        if tuple(weight.shape) != expected:
            long = {"q": "query", "k": "key", "v": "value"}[name]
            raise AttentionError(f"expecting {long} weights shape of {expected}, but got {weight.shape}")
        made.append(linear(x, weight, own))
    return tuple(made)


def _heads(x: Tensor, heads: int) -> Tensor:
    """``[L, N, E]`` as ``[N, H, L, E / H]``."""
    length, batch, width = x.raw.shape
    return x.reshape(length, batch, heads, width // heads).permute(1, 2, 0, 3)


def _keys_and_values(
    k: Tensor, v: Tensor, biases: Any, statics: Any, add_zero: bool, sizes: tuple[int, int, int]
) -> tuple[Any, Any]:
    """Keys and values as heads ``[N, H, S, E / H]``, behind them the learned one and the one of zeros."""
    batch, heads, depth = sizes
    if (biases[0] is None) != (biases[1] is None):
        given, absent = ("bias_v", "bias_k") if biases[0] is None else ("bias_k", "bias_v")
        raise AttentionError(f"{given} is set but {absent} is None. Give both or none.")
    made = []
    for x, bias, static, name in zip((k, v), biases, statics, ("key", "value"), strict=True):
        if bias is not None:
            if static is not None:
                raise AttentionError(f"bias cannot be added to static {name}.")
            x = f.cat(x, bias.expand(1, batch, heads * depth), axis=0)
        x = _heads(x, heads) if static is None else _static(static, f"static_{name[0]}", sizes)
        if add_zero:
            x = f.cat(x, zeros((batch, heads, 1, depth), dtype=x.dtype, device=x.device), axis=2)
        made.append(x)
    return made[0], made[1]


def _static(x: Tensor, name: str, sizes: tuple[int, int, int]) -> Tensor:
    """Keys or values ``[N * H, S, E / H]`` of the caller as heads."""
    batch, heads, depth = sizes
    if x.raw.shape[0] != batch * heads:
        raise AttentionError(f"expecting {name}.size(0) of {batch * heads}, but got {x.raw.shape[0]}")
    if x.raw.shape[2] != depth:
        raise AttentionError(f"expecting {name}.size(2) of {depth}, but got {x.raw.shape[2]}")
    return x.reshape(batch, heads, -1, depth)


def _as_3d(mask: Tensor, heads: int, length: int, sources: int) -> Tensor:
    """``mask`` with a first axis of 1 or of all heads."""
    rank = mask.raw.ndim
    expected = (length, sources) if rank == 2 else (heads, length, sources)
    if tuple(mask.raw.shape) != expected:
        raise ModuleError(f"The shape of the {rank}D attn_mask is {mask.shape}, but should be {expected}.")
    return mask.unsqueeze(0) if rank == 2 else mask


def _merged(
    mask: Tensor | None, padding: Tensor | None, extra: int, sizes: tuple[int, int, int]
) -> Tensor | None:
    """Both masks as one of 4 axes, open for the ``extra`` keys at the end."""
    batch, heads, sources = sizes
    if extra:
        mask, padding = (
            None if m is None else f.cat(m, m.new_zeros((*m.raw.shape[:-1], extra)), axis=m.raw.ndim - 1)
            for m in (mask, padding)
        )
    if mask is not None:
        first, length = mask.raw.shape[:2]
        mask = mask.unsqueeze(0) if first == 1 else mask.reshape(batch, heads, length, sources)
    if padding is None:
        return mask
    for axis, expected in enumerate((batch, sources)):
        if padding.raw.shape[axis] != expected:
            raise PaddingMaskError(
                f"Expected key_padded_mask.shape[{axis}] to be {expected}, but got {padding.raw.shape[axis]}"
            )
    padding = padding.reshape(batch, 1, 1, sources)
    return padding if mask is None else mask + padding


def _attend_openly(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float) -> tuple[Any, Any]:
    """Attended values and the weights they were taken with."""
    if mask is not None and mask.dtype != q.dtype and q.raw.dtype.itemsize != 2:  # autocast narrows all
        raise DTypeError(
            f"Input dtypes must be the same, got: input {mask.dtype}, batch1: {q.dtype}, batch2: {k.dtype}."
            " Convert the float mask with .to(dtype)."
        )
    scores = f.matmul(q * q.raw.shape[-1] ** -0.5, k.transpose(-2, -1))
    weights = f.softmax(scores if mask is None else scores + mask, axis=3)
    if dropout_p > 0:
        weights = dropout(weights.contiguous(), dropout_p)  # drawn in the order that torch draws in
    return f.matmul(weights, v), weights


__all__ = ["additive_mask", "multi_head_attention_forward"]
