"""The Transformer (Vaswani et al., 2017), its encoder and decoder, and their layers.

Sequences are ``[L, N, E]``, or ``[N, L, E]`` with ``batch_first``, or ``[L, E]``. Boolean masks are True
where attention is not allowed; float masks are added to the scores.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tenon.engine.watchers import WATCHERS
from tenon.errors import ModuleValueError, ShapeError
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.containers import ModuleList
from tenon.nn.functional.multi_head_attention import additive_mask
from tenon.nn.layers.activation import GELU, ReLU
from tenon.nn.layers.attention import MultiheadAttention
from tenon.nn.layers.dropout import Dropout
from tenon.nn.layers.linear import Linear
from tenon.nn.layers.norm import LayerNorm
from tenon.nn.module import Module
from tenon.nn.parameter import FactoryOptions
from tenon.tensors.autograd.grad_mode import is_grad_enabled
from tenon.tensors.creation.factories import full
from tenon.tensors.wrong_arguments import guard

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


def _causal_mask(size: int, device: DeviceLike = None, dtype: dtype | None = None) -> Tensor:
    """Return a mask ``[size, size]``: minus infinity (or True) above the diagonal, else 0."""
    return full((size, size), -math.inf, dtype=dtype, device=device).triu(1)


def _is_causal(mask: Tensor | None, hint: bool | None, sequence: Tensor, batch_first: bool) -> bool:
    """Return ``hint``; if None, whether ``mask`` equals the causal mask (False while recording)."""
    if hint is not None or mask is None or WATCHERS.recorder is not None:
        return hint is True
    length = sequence.shape[1 if batch_first and sequence.dim() == 3 else 0]
    if tuple(mask.shape) != (length, length):
        return False
    return bool((mask == _causal_mask(length, mask.device, mask.dtype)).all())


class _Layer(Module):
    """Base class of encoder and decoder layers.

    A layer has the attention blocks that ``names`` lists and a feed-forward block, each with a norm and
    dropout.
    """

    __constants__ = ("norm_first",)
    names: tuple[str, ...]

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: DeviceLike = None,
        dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options: FactoryOptions = {"device": device, "dtype": dtype}
        for name in self.names:
            attention = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **options)
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **options)
        self.norm_first = norm_first
        blocks = range(1, len(self.names) + 2)
        for i in blocks:
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, **options))
        for i in blocks:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation) if isinstance(activation, str) else activation

    def _attend(self, position: int, x: Tensor, source: Tensor, *masks: Tensor | bool | None) -> Tensor:
        """Return the result of the attention block at ``position``, with its dropout.

        ``masks`` are the attention mask, the key padding mask, and whether the first is causal.
        """
        mask, padding, causal = masks
        output, _ = getattr(self, self.names[position])(
            x, source, source, key_padding_mask=padding, need_weights=False, attn_mask=mask, is_causal=causal
        )
        return getattr(self, f"dropout{position + 1}")(output)

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        return self._attend(0, x, x, attn_mask, key_padding_mask, is_causal)

    def _ff_block(self, x: Tensor) -> Tensor:
        last = getattr(self, f"dropout{len(self.names) + 1}")
        return last(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _residual(
        self, position: int, x: Tensor, block: Callable[..., Tensor], *args: Tensor | bool | None
    ) -> Tensor:
        """Return ``x`` plus ``block(x, *args)``, with the norm at ``position`` before the block or after the
        sum."""
        norm = getattr(self, f"norm{position + 1}")
        return x + block(norm(x), *args) if self.norm_first else norm(x + block(x, *args))


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    if name not in ("relu", "gelu"):
        raise ModuleValueError(
            f"activation should be relu/gelu, not {name}. Other functions are given as such."
        )
    return F.relu if name == "relu" else F.gelu


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual connection and a norm.

    ``norm_first`` normalises the input of each block instead of the sum. ``activation`` is "relu", "gelu" or
    a function.
    """

    names = ("self_attn",)
    self_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm

    @property
    def activation_relu_or_gelu(self) -> int:
        """1 for ReLU, 2 for GELU, else 0."""
        is_relu = self.activation is F.relu or isinstance(self.activation, ReLU)
        is_gelu = self.activation is F.gelu or isinstance(self.activation, GELU)
        return 1 if is_relu else 2 if is_gelu else 0

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """``src`` after this layer: ``src_mask`` is ``[L, L]`` or ``[N * H, L, L]``, ``src_key_padding_mask``
        ``[N, L]``."""
        padding = additive_mask(src_key_padding_mask, "src_key_padding_mask", src, src_mask, "src_mask")
        mask = additive_mask(src_mask, "src_mask", src)
        x = self._residual(0, src, self._sa_block, mask, padding, is_causal)
        return self._residual(1, x, self._ff_block)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and a feed-forward network, each with a residual
    connection and a norm. The arguments are those of ``TransformerEncoderLayer``."""

    names = ("self_attn", "multihead_attn")
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """``tgt`` after self-attention, attention to ``memory``, and the feed-forward network."""
        masks = (memory_mask, memory_key_padding_mask, memory_is_causal)
        x = self._residual(0, tgt, self._sa_block, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = self._residual(1, x, self._mha_block, memory, *masks)
        return self._residual(2, x, self._ff_block)

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        return self._attend(1, x, mem, attn_mask, key_padding_mask, is_causal)


class _Stack(Module):
    """Base class of encoder and decoder: ``num_layers`` copies of ``layer``, then ``norm``."""

    __constants__ = ("norm",)

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm


class TransformerEncoder(_Stack):
    """``num_layers`` copies of ``encoder_layer``, then ``norm``.

    There are no nested tensors here. ``enable_nested_tensor`` and ``mask_check`` have the effect on values
    that they have in PyTorch: where its fast path runs (evaluation, no gradients, right-padded sequences),
    the positions that ``src_key_padding_mask`` hides are 0 in the output of the last layer.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = enable_nested_tensor and _has_fast_path(encoder_layer)
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Return ``src`` after all layers; ``is_causal=None`` detects whether ``mask`` is causal."""
        padding = additive_mask(src_key_padding_mask, "src_key_padding_mask", src, mask, "mask")
        mask = additive_mask(mask, "mask", src)
        causal = _is_causal(mask, is_causal, src, self.layers[0].self_attn.batch_first)
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        if padding is not None and mask is None and self._takes_fast_path(src):
            hidden = padding != 0
            if not self.mask_check:
                x = x.masked_fill(hidden.unsqueeze(-1), 0.0)
            elif WATCHERS.recorder is not None:  # a recorded program cannot branch on values
                x = x.masked_fill((hidden & _is_right_padded(hidden)).unsqueeze(-1), 0.0)
            elif bool(_is_right_padded(hidden)):
                x = x.masked_fill(hidden.unsqueeze(-1), 0.0)
        return x if self.norm is None else self.norm(x)

    def _takes_fast_path(self, src: Tensor) -> bool:
        """Return whether PyTorch would take its fast path, whose nested tensors do not store padding."""
        first = self.layers[0]
        if not self.use_nested_tensor or first.training or src.dim() != 3:
            return False
        return not (
            is_grad_enabled() and (src.requires_grad or any(p.requires_grad for p in first.parameters()))
        )


def _is_right_padded(hidden: Tensor) -> Tensor:
    """Return whether the positions that are hidden, ``[N, T]``, are the last ones of each sequence."""
    numbers = hidden.int()
    return (numbers[:, 1:] >= numbers[:, :-1]).all()


def _has_fast_path(layer: Module) -> bool:
    """Return whether PyTorch has a fast path through layers like this."""
    if not isinstance(layer, TransformerEncoderLayer) or layer.norm_first:
        return False
    attention = layer.self_attn
    return (
        attention.batch_first
        and attention.in_proj_bias is not None
        and layer.activation_relu_or_gelu != 0
        and layer.norm1.eps == layer.norm2.eps
        and attention.num_heads % 2 == 0
    )


class TransformerDecoder(_Stack):
    """``num_layers`` copies of ``decoder_layer``, then ``norm``."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return ``tgt`` after all layers; ``tgt_is_causal=None`` detects whether ``tgt_mask`` is causal."""
        causal = _is_causal(tgt_mask, tgt_is_causal, tgt, self.layers[0].self_attn.batch_first)
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """Encoder and decoder: ``src[S, N, E]`` and ``tgt[T, N, E]`` to ``[T, N, E]``.

    ``custom_encoder`` and ``custom_decoder`` replace the default ones. Weights are initialised by
    ``init.xavier_uniform_``.
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        custom_encoder: Callable[..., Tensor] | None = None,
        custom_decoder: Callable[..., Tensor] | None = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: DeviceLike = None,
        dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options: FactoryOptions = {"device": device, "dtype": dtype}

        def create(
            layer_class: type[_Layer], stack: Callable[[Module, int, Module], _Stack], n: int
        ) -> _Stack:
            layer = layer_class(
                d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
                bias, **options,
            )  # fmt: skip
            return stack(layer, n, LayerNorm(d_model, layer_norm_eps, bias=bias, **options))

        if custom_encoder is None:
            custom_encoder = create(TransformerEncoderLayer, TransformerEncoder, num_encoder_layers)
        self.encoder = custom_encoder
        if custom_decoder is None:
            custom_decoder = create(TransformerDecoderLayer, TransformerDecoder, num_decoder_layers)
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The decoder's output for ``tgt``, with the encoder's for ``src`` as its memory."""
        axis = 0 if self.batch_first else 1
        if src.dim() == 3 and src.shape[axis] != tgt.shape[axis]:
            raise ShapeError(
                f"the batch number of src and tgt must be equal, got {list(src.shape)} and {list(tgt.shape)}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError(
                f"the feature number of src and tgt must be equal to d_model, got {src.shape[-1]} and"
                f" {tgt.shape[-1]} for {self.d_model}"
            )
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: DeviceLike = None, dtype: dtype | None = None
    ) -> Tensor:
        """A causal mask ``[sz, sz]``: minus infinity above the diagonal, else 0."""
        return _causal_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        """Initialise parameters of more than one axis by ``init.xavier_uniform_``."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)


guard((Transformer.forward,), first=0)
