"""int8 without calibration: products of int8 weights and activations that are rounded at each call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon import nn
from tenon_compress.quantize.layers import DynamicLinear, QuantizedEmbedding, QuantizedEmbeddingBag
from tenon_compress.quantize.recurrent_layers import DYNAMIC
from tenon_compress.quantize.scheme import Scheme
from tenon_compress.quantize.weights import Int8Weights

if TYPE_CHECKING:
    from tenon.extend import Module


class Int8Dynamic(Scheme):
    """``Linear``, recurrent layers and cells compute in int8, ``Embedding`` and its bags store int8 rows.

    LSTMs with a projection store int8 weights and compute in float32.

    Only these very classes: a subclass may use its weight in its own way.
    """

    name = "int8-dynamic"

    def layer(self, module: Module) -> Module | None:
        """By the class of ``module``."""
        kind = type(module)
        if kind is nn.Linear:
            return DynamicLinear.of(module)
        if kind is nn.Embedding and module.max_norm is None:
            return QuantizedEmbedding.of(module)
        if kind is nn.EmbeddingBag and module.max_norm is None:
            return QuantizedEmbeddingBag.of(module)
        if kind is nn.LSTM and module.proj_size:
            return Int8Weights().layer(module)
        return DYNAMIC[kind].of(module) if kind in DYNAMIC else None
