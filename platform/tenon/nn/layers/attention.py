"""``MultiheadAttention``: multi-head attention with learned projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.errors import AttentionError
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.layers.linear import Linear
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.creation.factories import empty

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = ["MultiheadAttention"]


class NonDynamicallyQuantizableLinear(Linear):
    """A ``Linear`` under the name that the output projection has in PyTorch's printed models."""


class MultiheadAttention(Module):
    """Attention by ``num_heads`` heads of width ``embed_dim / num_heads``, and a projection of their
    concatenated results (Vaswani et al., 2017).

    ``kdim`` and ``vdim`` are the widths of keys and values where they differ from ``embed_dim``;
    ``add_bias_kv`` adds a learned key and value, ``add_zero_attn`` one of zeros. Inputs are ``[L, N, E]``, or
    ``[N, L, E]`` with ``batch_first``, or ``[L, E]``. ``dropout`` applies to the attention weights, in
    training.

    Evaluation has no fast path of its own: a query that may not attend to any key gets what it gets in
    training, where PyTorch's fast path returns NaN.
    """

    __constants__ = ("batch_first",)
    in_proj_weight: Tensor | None
    in_proj_bias: Tensor | None
    q_proj_weight: Tensor | None
    k_proj_weight: Tensor | None
    v_proj_weight: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike = None,
        dtype: dtype | None = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise AttentionError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and"
                f" num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if embed_dim % num_heads:
            raise AttentionError(
                f"embed_dim must be divisible by num_heads: {embed_dim} is not a multiple of {num_heads}."
            )

        def add(name: str, is_used: bool, *shape: int) -> None:
            parameter = Parameter(empty(shape, device=device, dtype=dtype)) if is_used else None
            self.register_parameter(name, parameter)

        same = self._qkv_same_embed_dim
        widths = {"q_proj_weight": embed_dim, "k_proj_weight": self.kdim, "v_proj_weight": self.vdim}
        if same:
            add("in_proj_weight", True, 3 * embed_dim, embed_dim)
        for name, width in widths.items():
            add(name, not same, embed_dim, width)
        if not same:
            add("in_proj_weight", False)
        add("in_proj_bias", bias, 3 * embed_dim)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, device, dtype)
        add("bias_k", add_bias_kv, 1, 1, embed_dim)
        add("bias_v", add_bias_kv, 1, 1, embed_dim)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Xavier's uniform weights, biases of 0, and Xavier's normal key and value."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for learned in (self.bias_k, self.bias_v):
            if learned is not None:
                init.xavier_normal_(learned)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attended values, shaped like ``query``, and the attention weights or None; see
        ``F.multi_head_attention_forward``."""
        swapped = self.batch_first and query.dim() == 3
        if swapped:
            same = (query is key, key is value)
            query = query.transpose(1, 0)
            key = query if same[0] else key.transpose(1, 0)
            value = key if same[1] else value.transpose(1, 0)
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return output.transpose(1, 0) if swapped else output, weights

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Return the sum of both masks, ``[N, H, L, L]`` for ``query[N, L, E]``, and its type.

        The type is 1 for ``key_padding_mask`` alone, which is returned unchanged, 2 if there is an
        ``attn_mask``, and None without masks.
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length, _ = query.shape
        if attn_mask.dim() == 3:
            merged = attn_mask.view(batch, -1, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
        return merged, 2
