"""``multi_head_attention_forward``: input projections, attention per head, and the output projection.

Queries, keys and values come as ``[L, N, E]``. Heads are views of the projections: ``[N, H, L, E / H]``.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, TypeAlias

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.errors import AttentionError, DTypeError, ModuleError, PaddingMaskError, TenonWarning
from tenon.kernels.whole_arrays import beside
from tenon.nn.functional.attention import scaled_dot_product_attention
from tenon.nn.functional.dropout import dropout
from tenon.nn.functional.linear import linear
from tenon.tensors.creation.factories import zeros

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

#: A value for keys and one for values, each of which may be absent.
_Pair: TypeAlias = "tuple[Tensor | None, Tensor | None]"


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
) -> tuple[Tensor, Tensor | None]:
    """The attended values ``[L, N, E]`` (or ``[L, E]``) and, if ``need_weights``, the weights: of all heads
    ``[N, H, L, S]``, or their mean ``[N, L, S]``.

    ``query`` is ``[L, N, E]``, ``key`` and ``value`` are ``[S, N, E]``, all without ``N`` if unbatched.
    ``key_padding_mask[N, S]`` and ``attn_mask[L, S]`` or ``[N * H, L, S]``: boolean masks are True where
    queries may not attend; float masks are added to the scores. ``is_causal`` says that ``attn_mask`` is the
    causal mask. A query that may not attend to any key gets NaN with ``need_weights``, else 0.
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
        projections = [q_proj_weight, k_proj_weight, v_proj_weight]
        q, k, v = _project(query, key, value, projections, in_proj_bias)
    else:
        q, k, v = _project_packed(query, key, value, same, in_proj_weight, in_proj_bias)
    width = q.raw.shape[-1]  # E, or less where heads have been removed
    if width % num_heads:
        raise AttentionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if mask is not None:
        mask = _mask_3d(mask, batch * num_heads, length, key.raw.shape[0])
    q = _heads(q, num_heads)
    biases, statics = (bias_k, bias_v), (static_k, static_v)
    k, v = _keys_and_values(k, v, biases, statics, add_zero_attn, (batch, num_heads, width // num_heads))
    extra = (bias_k is not None) + add_zero_attn
    mask = _merge_masks(mask, padding, extra, (batch, num_heads, k.raw.shape[2]))
    dropout_p = dropout_p if training else 0.0
    if need_weights:
        result, weights = _attend_with_weights(q, k, v, mask, dropout_p)
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        result, weights = scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal), None
    result = linear(result.permute(2, 0, 1, 3).reshape(length, batch, width), out_proj_weight, out_proj_bias)
    if not batched:
        return result.squeeze(1), None if weights is None else weights.squeeze(0)
    return result, weights


def additive_mask(
    mask: Tensor | None, name: str, like: Tensor, other: Tensor | None = None, other_name: str = ""
) -> Tensor | None:
    """Return ``mask`` as a float mask to add; True of a boolean mask becomes minus infinity of ``like``'s
    dtype.

    Raises AttentionError for integers, and warns if ``other``, the mask of ``other_name``, has another dtype.
    """
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


def _check_ranks(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int
) -> bool:
    """Return whether the input is batched; raise AttentionError unless the other arguments are alike."""
    rank, ranks = query.raw.ndim, (key.raw.ndim, value.raw.ndim)
    if rank not in (2, 3):
        raise AttentionError(
            f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor"
        )
    kind = f"For {'batched' if rank == 3 else 'unbatched'} ({rank}-D) `query`, expected"
    if ranks != (rank, rank):
        raise AttentionError(
            f"{kind} `key` and `value` to be {rank}-D but found {ranks[0]}-D and {ranks[1]}-D tensors"
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
    """Raise AttentionError unless queries have ``width`` features and keys and values have fitting shapes."""
    query_width = query.raw.shape[-1]
    if query_width != width:
        raise AttentionError(f"was expecting embedding dimension of {width}, but got {query_width}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise AttentionError(
            f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}"
        )
    if not separate and key.shape != value.shape:
        raise AttentionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _project_packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    same: tuple[bool, bool],
    weight: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, ...]:
    """Project queries, keys and values by one weight ``[3 * E, E]``.

    ``same`` says whether query is key and key is value: one matrix product then serves both.
    """
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
    query: Tensor, key: Tensor, value: Tensor, weights: list[Tensor | None], bias: Tensor | None
) -> tuple[Tensor, ...]:
    """Project queries, keys and values, each by a weight of its own."""
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    width = query.raw.shape[-1] if weights[0] is None else weights[0].raw.shape[0]
    projections = []
    for name, x, weight, part in zip("qkv", (query, key, value), weights, biases, strict=True):
        if weight is None:
            raise AttentionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
        expected = (width, x.raw.shape[-1])
        if tuple(weight.shape) != expected:
            long = {"q": "query", "k": "key", "v": "value"}[name]
            raise AttentionError(f"expecting {long} weights shape of {expected}, but got {weight.shape}")
        projections.append(linear(x, weight, part))
    return tuple(projections)


def _heads(x: Tensor, heads: int) -> Tensor:
    """Return ``x[L, N, E]`` as ``[N, H, L, E / H]``."""
    length, batch, width = x.raw.shape
    return x.reshape(length, batch, heads, width // heads).permute(1, 2, 0, 3)


def _keys_and_values(
    k: Tensor, v: Tensor, biases: _Pair, statics: _Pair, add_zero: bool, sizes: tuple[int, int, int]
) -> tuple[Tensor, Tensor]:
    """Return keys and values ``[N, H, S, E / H]``, with a learned one and one of zeros appended if requested.

    ``statics`` are keys and values of the caller, which replace the projections.
    """
    batch, heads, depth = sizes
    if (biases[0] is None) != (biases[1] is None):
        present, absent = ("bias_v", "bias_k") if biases[0] is None else ("bias_k", "bias_v")
        raise AttentionError(f"{present} is set but {absent} is None. Give both or none.")
    results = []
    for x, bias, static, name in zip((k, v), biases, statics, ("key", "value"), strict=True):
        if bias is not None:
            if static is not None:
                raise AttentionError(f"bias cannot be added to static {name}.")
            x = f.cat(x, bias.expand(1, batch, heads * depth), axis=0)
        x = _heads(x, heads) if static is None else _static(static, f"static_{name[0]}", sizes)
        if add_zero:
            none = zeros((batch, heads, 1, depth), dtype=x.dtype, device=x.device)
            x = f.cat(x, beside(x, none), axis=2)
        results.append(x)
    return results[0], results[1]


def _static(x: Tensor, name: str, sizes: tuple[int, int, int]) -> Tensor:
    """Return the caller's keys or values ``[N * H, S, E / H]`` as ``[N, H, S, E / H]``."""
    batch, heads, depth = sizes
    if x.raw.shape[0] != batch * heads:
        raise AttentionError(f"expecting {name}.size(0) of {batch * heads}, but got {x.raw.shape[0]}")
    if x.raw.shape[2] != depth:
        raise AttentionError(f"expecting {name}.size(2) of {depth}, but got {x.raw.shape[2]}")
    return x.reshape(batch, heads, -1, depth)


def _mask_3d(mask: Tensor, heads: int, length: int, sources: int) -> Tensor:
    """Return ``mask`` as ``[1, L, S]`` or ``[N * H, L, S]``."""
    rank = mask.raw.ndim
    expected = (length, sources) if rank == 2 else (heads, length, sources)
    if tuple(mask.raw.shape) != expected:
        raise ModuleError(f"The shape of the {rank}D attn_mask is {mask.shape}, but should be {expected}.")
    return mask.unsqueeze(0) if rank == 2 else mask


def _merge_masks(
    mask: Tensor | None, padding: Tensor | None, extra: int, sizes: tuple[int, int, int]
) -> Tensor | None:
    """Return the sum of both masks, ``[N, H, L, S]``, extended by zeros for the ``extra`` keys at the end."""
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


def _attend_with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """Return the attended values ``[N, H, L, E / H]`` and the attention weights ``[N, H, L, S]``."""
    if mask is not None and mask.dtype != q.dtype and q.raw.dtype.itemsize != 2:  # autocast casts both
        raise DTypeError(
            f"Input dtypes must be the same, got: input {mask.dtype}, batch1: {q.dtype}, batch2: {k.dtype}."
            " Convert the float mask with .to(dtype)."
        )
    scores = f.matmul(q * q.raw.shape[-1] ** -0.5, k.transpose(-2, -1))
    weights = f.softmax(scores if mask is None else scores + mask, axis=3)
    if dropout_p != 0:  # which refuses what is no probability
        weights = dropout(weights.contiguous(), dropout_p)  # in PyTorch's order of draws
    return f.matmul(weights, v), weights


__all__ = ["additive_mask", "multi_head_attention_forward"]
