"""int8 without calibration: activations are quantized at each call."""

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

    Only these classes themselves: a subclass may use its weight differently.
    """

    name = "int8-dynamic"

    def layer(self, module: Module) -> Module | None:
        """Return the quantized layer for the class of ``module``, or None."""
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
